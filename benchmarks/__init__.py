"""What Asterism costs, beside what Spark itself costs and what one would write by hand. See README.md."""
