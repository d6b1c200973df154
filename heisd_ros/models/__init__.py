"""Everything that needs torch: the target model, its vision encoder and its trained drafter."""
