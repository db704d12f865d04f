"""Adapters: Foldline inside other people's agent frameworks, each an extra and one module (docs/adapters.md).

`adapter` has what all of them share: a view for each call of the model, its usage back, and an overflow that is retried
inside the call. `histories` finds the conversation of a call, `translation` leads from a framework's messages to JSON
and back to the framework's own objects, `content_blocks` does so for the blocks of a message. A framework's own history
is only read.
"""
