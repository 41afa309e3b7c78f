"""The kit that every study is made of: configurations, the engine that sweeps them, results and claims."""
