"""The engine's side of Pulumi's wire: what a program registers, with the SDK or past it."""
