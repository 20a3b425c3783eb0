"""What a stack is made of, as Pulumi resources. Components declare; they compute nothing."""
