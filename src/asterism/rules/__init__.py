"""Pattern processors (FLIP-200): rules that change while the stream runs, and who coordinates them."""
