"""What flows through Services, shown: once, or again and again."""
