"""The egress gate: the only code that connects towards a commercial API. It accepts only a sealed `MaskedRequest`."""
