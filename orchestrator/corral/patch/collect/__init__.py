"""What a run changed: from the overlay's upper directory, or from a manifest of a copied tree."""
