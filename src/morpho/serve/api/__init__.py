"""OpenAI's forms: a body of JSON becomes a request of the engine, and events become objects and chunks. No network."""
