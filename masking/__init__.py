"""De-identification before anything goes to a commercial API, and its reversal on the way back.

What this layer finds is *structured*: e-mail addresses, telephone, card, account, registration, passport and licence
numbers, IBAN, IP and MAC addresses, URLs, UUIDs, wallets, vehicle plates, full dates, and every run of seven or more
digits or `@` that is left over. It does **not** find names of people, postal addresses or other free prose about a
person: masked is not anonymous. Who may send such text outward is for the policy to say.
"""
