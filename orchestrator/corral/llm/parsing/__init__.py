"""From what a model sent to typed calls and text. Nothing here trusts the model, or raises for what it wrote."""
