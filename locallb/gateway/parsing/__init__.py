"""From Kubernetes objects to Gateway API's, field by field. Pure, and total: rubbish is told, never raised."""
