"""Whom a party waits for, in words."""

from __future__ import annotations

from veracausa.events import Event


def waiting_words(event: Event) -> str:
    """The line for an event of waiting; empty where it is another event."""
    match event["event"]:
        case "waiting":
            return f"waiting for {', '.join(event['peers'])}{_so_far(event.get('seconds', 0.0))}"
        case "unreachable":
            why = f"cannot reach {_who(event)} at {event['at']}: {event['why']}"
            return f"{why}; trying again{_so_far(event['seconds'])}"
        case "reached":
            return f"{_who(event)} at {event['at']} can be reached again"
    return ""


def _who(event: Event) -> str:
    return "the coordinator" if event["member"] == "coordinator" else f"{event['member']}, which serves,"


def _so_far(seconds: float) -> str:
    if seconds < 5:
        return ""
    return f" ({seconds:.0f} s so far)" if seconds < 120 else f" ({seconds / 60:.0f} min so far)"
