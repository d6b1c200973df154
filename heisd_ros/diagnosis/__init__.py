"""What a person sees of a running robot: findings of `heisd doctor`, the live view, colours."""
