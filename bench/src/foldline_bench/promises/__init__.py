"""The conformance suite: promises that any tool which keeps an agent inside its window can be held to.

`wire_forms` writes messages of each dialect, `shapes` makes histories of them, `targets` has what is tested (a
function, a class, an adapter, a command, a proxy), `rounds` sends histories through it, `promises` and `trials` judge
what came out, `suite` runs all of it, `command` is `foldline conformance`. docs/conformance.md explains each promise.
"""
