"""The script that keeps a tier's slots in Redis. All of it happens in one step there, on Redis's own clock.

Keys, all below one hash tag, so that a cluster keeps them together; every one expires:

    1 meta      hash        which life of these keys this is (`epoch`), and whether it is settled
    2 members   hash        replica -> number of its last statement, and the places it takes slots on
    3 alive     sorted set  replica -> when it counts as gone, in ms
    4 waiting   sorted set  claim -> its place in the order: priority, then the moment of asking
    5.. leases  sorted set  of each place named in the statement: claim -> when its lease ends, in ms

A replica makes the names of its claims (`replica.number`) itself and never twice. A claim stands in `waiting` or among
the leases of one place; so whatever is said twice, or late, counts once.
"""

from __future__ import annotations

from typing import Final

from weighbridge.state.redis_terms import Script

SLOTS: Final = Script(
    """
local meta, members, alive, waiting = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local s = cjson.decode(ARGV[1])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function ms(n) return string.format('%.0f', n) end
local me, ends = s.me, ms(now + s.lease_ms)

local epoch = redis.call('HGET', meta, 'epoch')
if not epoch then
  epoch = ms(now) .. '-' .. me
  redis.call('HSET', meta, 'epoch', epoch, 'born', ms(now), 'expected', '0', 'settled', '0')
  redis.call('PEXPIRE', meta, 3 * s.lease_ms)
  redis.call('PUBLISH', s.channel, 'news')
end
local known = redis.call('HGET', members, me)
if known and tonumber(string.match(known, '^%d+')) >= s.number then return {'late', epoch} end
if not s.whole and (epoch ~= s.epoch or not known) then return {'restate', epoch} end

-- What has ended.
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', alive, '-inf', ms(now))) do
  redis.call('ZREM', alive, gone)
  redis.call('HDEL', members, gone)
end
local index = {}
for i, place in ipairs(s.places) do
  index[place[1]] = i
  redis.call('ZREMRANGEBYSCORE', KEYS[4 + i], '-inf', ms(now))
end

-- What this replica has, wholly or since its last statement.
local granted = {}
local function grant(id, i)
  granted[#granted + 1] = id
  granted[#granted + 1] = s.places[i][1]
end
if s.whole then
  local mine, own = {}, me .. '.'
  for _, ids in ipairs(s.held) do for _, id in ipairs(ids) do mine[id] = true end end
  for _, claim in ipairs(s.claims) do mine[claim[1]] = true end
  for i = 1, #s.places + 1 do
    local key = i > #s.places and waiting or KEYS[4 + i]
    for _, id in ipairs(redis.call('ZRANGE', key, 0, -1)) do
      if string.sub(id, 1, #own) == own and not mine[id] then redis.call('ZREM', key, id) end
    end
  end
  for i, ids in ipairs(s.held) do
    for _, id in ipairs(ids) do redis.call('ZADD', KEYS[4 + i], ends, id) end
  end
else
  for _, gone in ipairs(s.gone) do
    local i = index[gone[2]]
    if i then
      redis.call('ZREM', KEYS[4 + i], gone[1])
    else
      redis.call('ZREM', waiting, gone[1])
      for j = 1, #s.places do redis.call('ZREM', KEYS[4 + j], gone[1]) end
    end
  end
end
local wishes = {}
for _, claim in ipairs(s.claims) do
  local id, had = claim[1], false
  if s.whole then
    for i = 1, #s.places do
      if redis.call('ZSCORE', KEYS[4 + i], id) then
        redis.call('ZADD', KEYS[4 + i], ends, id)
        grant(id, i)
        had = true
      end
    end
  end
  if not had then
    redis.call('ZADD', waiting, 'NX', ms(claim[2] * 1e13 + now - claim[3]), id)
    wishes[id] = claim
  end
end
if s.leaves then
  redis.call('ZREM', alive, me)
  redis.call('HDEL', members, me)
else
  local takes = ','
  for _, place in ipairs(s.places) do if place[3] then takes = takes .. place[1] .. ',' end end
  redis.call('ZADD', alive, ends, me)
  redis.call('HSET', members, me, ms(s.number) .. ':' .. takes)
end

-- After a flush or a restart nothing is granted before every replica has said what it holds, or had the time to.
local replicas = redis.call('ZCARD', alive)
local settled = redis.call('HGET', meta, 'settled') == '1'
if not settled then
  local expected = math.max(tonumber(redis.call('HGET', meta, 'expected')), s.replicas)
  redis.call('HSET', meta, 'expected', ms(expected))
  if replicas >= expected or now - tonumber(redis.call('HGET', meta, 'born')) >= s.settle_ms then
    settled = true
    redis.call('HSET', meta, 'settled', '1')
    redis.call('PUBLISH', s.channel, 'news')
  end
end

-- Whose turn it is.
local busy, free = {}, 0
for i, place in ipairs(s.places) do
  busy[i] = redis.call('ZCARD', KEYS[4 + i])
  free = free + math.max(0, place[2] - busy[i])
end
local taken = {}
local function takes_of(replica)
  if taken[replica] == nil then
    local entry, list = redis.call('HGET', members, replica), false
    if entry then
      list = {}
      for key in string.gmatch(string.sub(entry, string.find(entry, ':') + 1), '[^,]+') do
        if index[key] then list[#list + 1] = index[key] end
      end
    end
    taken[replica] = list
  end
  return taken[replica]
end
local function choose(list, wish)
  local least, best, resort
  for _, i in ipairs(list) do
    if not least or busy[i] < least then least = busy[i] end
  end
  for _, i in ipairs(list) do
    if busy[i] < s.places[i][2] then
      local shunned = false
      if wish then
        for _, j in ipairs(wish[5]) do if j == i then shunned = true end end
        if i == wish[4] and not shunned and busy[i] < least + math.max(2, math.floor(s.places[i][2] / 4)) then
          return i
        end
      end
      if shunned then
        if not resort or busy[i] < busy[resort] then resort = i end
      elseif not best or busy[i] < busy[best] then
        best = i
      end
    end
  end
  return best or resort
end
if settled and free > 0 then
  local stuck, stuck_count, offset = {}, 0, 0
  while free > 0 and stuck_count < replicas do
    local claims = redis.call('ZRANGE', waiting, offset, offset + 63)
    if #claims == 0 then break end
    for _, id in ipairs(claims) do
      if free == 0 then break end
      local replica = string.match(id, '^(.*)%.')
      local list = takes_of(replica)
      if not list then
        redis.call('ZREM', waiting, id)
      else
        local i = not stuck[replica] and choose(list, wishes[id]) or nil
        if i then
          redis.call('ZREM', waiting, id)
          redis.call('ZADD', KEYS[4 + i], ends, id)
          busy[i] = busy[i] + 1
          free = free - 1
          if replica == me then
            grant(id, i)
          else
            redis.call('PUBLISH', s.channel .. ':' .. replica, id .. ' ' .. s.places[i][1])
          end
        else
          offset = offset + 1
          if not stuck[replica] then
            stuck[replica] = true
            stuck_count = stuck_count + 1
          end
        end
      end
    end
  end
end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, 3 * s.lease_ms) end
return {'ok', epoch, settled and 1 or 0, replicas, granted, busy, redis.call('ZCARD', waiting)}
"""
)
"""Returns `ok`, epoch, settled (1 or 0), replicas alive, names and places of the claims granted, the leases of each
place, claims waiting; or `restate` and the epoch where only a whole statement is of use; or `late` where a later one
has come already."""
