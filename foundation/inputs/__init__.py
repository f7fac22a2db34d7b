"""What a model card states about inputs, and what one inference does. Open `model_input`."""
