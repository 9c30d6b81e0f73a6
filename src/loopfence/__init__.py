"""loopfence: the loop guard for fleets of LLM agents."""
