"""Statuses of Gateway API objects and Ingresses: desired, observed, and the patch between them."""
