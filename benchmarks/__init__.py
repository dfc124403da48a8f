"""Each figure that the README quotes, to be measured again.

- `table`      publishing against upstream's export of the same adapter, and the sizes of what is made (`make bench`)
- `upstream`   upstream's side of that, on request (`make bench-upstream`)
- `plan`       how long a device's plan takes as adapters and channels grow
- `documents`  manifest and release of 1,000 adapters, and what each step of a rollout publishes again
- `device`     what a foundation update costs a device in bytes, seconds and memory
- `weight_cache` load time and memory of 1 to 8 adapters in C++, with XNNPACK's weight cache and without
- `swap`       the same in Python's runtime with a language model's adapters
- `measure`    what a process costs, by the kernel's own accounting
"""
