"""Pattern processors (FLIP-200): rules that change while the stream runs, and the coordinator that manages them."""
