"""Which operations a decode step of the tutor is made of: `python -m book.examples.step_profile`."""

import time

from torch.profiler import ProfilerActivity, profile

from yaie import LLMEngine, SamplingParams

STEPS = 64


def main() -> None:
    # ANCHOR: profile
    engine = LLMEngine(model="tutor", mine="none", backend="torch", threads=1)
    params = SamplingParams(temperature=0, max_tokens=3 * STEPS, ignore_eos=True)
    for question in ("What is a KV cache?", "Why is decode slow?"):
        engine.add_request(engine.encode_chat([{"role": "user", "content": question}]), params)
    for _ in range(STEPS):  # prompts, and whatever happens only once
        engine.step()
    begin = time.perf_counter()
    for _ in range(STEPS):
        engine.step()
    plain = (time.perf_counter() - begin) / STEPS
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        for _ in range(STEPS // 2):
            engine.step()
    # ANCHOR_END: profile
    rows = sorted(seen.key_averages(), key=lambda row: -row.self_cpu_time_total)
    whole = sum(row.self_cpu_time_total for row in rows)
    print(f"{plain * 1e3:.2f} ms a step without the profiler; of the time in operators:")
    for row in rows[:6]:
        calls = row.count / (STEPS // 2)
        print(f"  {row.self_cpu_time_total / whole:4.0%}  {row.key:32s} {calls:5.0f} calls a step")


if __name__ == "__main__":
    main()
