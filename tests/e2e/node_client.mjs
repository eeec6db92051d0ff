// Asks the gateway as a program in Node does, with the official client, and prints what came as one JSON document.
import OpenAI from "openai";

const client = new OpenAI({
  baseURL: process.env.GATEWAY_URL,
  apiKey: process.env.GATEWAY_KEY,
  maxRetries: 0,
});
const model = "local-8b";
const messages = [{ role: "user", content: "Say hello to the team." }];
const told = {};

const { data, response } = await client.chat.completions
  .create({ model, messages, max_tokens: 12, temperature: 0 })
  .withResponse();
told.text = data.choices[0].message.content;
told.usage = data.usage;
told.road = response.headers.get("x-weighbridge-road");

let streamed = "";
let usage = null;
const stream = await client.chat.completions.create({
  model,
  messages,
  max_tokens: 12,
  temperature: 0,
  stream: true,
  stream_options: { include_usage: true },
});
for await (const chunk of stream) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
told.streamed = streamed;
told.streamedUsage = usage;

let korean = "";
const spelled = await client.chat.completions.create({
  model,
  messages,
  max_tokens: 200,
  stream: true,
  structured_outputs: { choice: [process.env.KOREAN] },
});
for await (const chunk of spelled) korean += chunk.choices[0]?.delta?.content ?? "";
told.korean = korean;

const tool = {
  type: "function",
  function: {
    name: "get_weather",
    parameters: {
      type: "object",
      properties: { city: { type: "string", maxLength: 12 } },
      required: ["city"],
      additionalProperties: false,
    },
  },
};
const called = await client.chat.completions.create({
  model,
  messages,
  tools: [tool],
  tool_choice: { type: "function", function: { name: "get_weather" } },
  max_tokens: 60,
  temperature: 0,
});
told.arguments = JSON.parse(called.choices[0].message.tool_calls[0].function.arguments);

const text = await client.completions.create({ model, prompt: "Say hello.", max_tokens: 8, temperature: 0 });
told.completion = text.choices[0].text;
told.models = [];
for await (const one of client.models.list()) told.models.push(one.id);

told.errors = {};
for (const [name, ask] of Object.entries({
  missing: () => client.chat.completions.create({ model: "gpt-nine", messages }),
  wrong: () => client.chat.completions.create({ model, messages, temperature: 99 }),
  notServed: () => client.embeddings.create({ model, input: "x" }),
})) {
  try {
    await ask();
  } catch (error) {
    told.errors[name] = { kind: error.constructor.name, status: error.status, code: error.code, param: error.param };
  }
}

console.log(JSON.stringify(told));
