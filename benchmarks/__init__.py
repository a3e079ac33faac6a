"""What the store costs, measured beside what people use today. See README.md."""
