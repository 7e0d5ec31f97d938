"""One job across organisations: who they are, what they agreed on, and how it goes on after a fault."""
