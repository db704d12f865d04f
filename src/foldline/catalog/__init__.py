"""What is known of models: windows, output limits, prices and cache rules, each with its source and date."""
