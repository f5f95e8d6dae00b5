"""The engine with settings of one's own, from Python. Run: python book/examples/configure.py"""

# ANCHOR: configure
from yaie import EngineConfig, LLMEngine

engine = LLMEngine(EngineConfig(block_size=32, max_num_seqs=64, policy="lpm"))
# Or shorter, with the environment and a file merged in as on the command line:
engine = LLMEngine(block_size=32, max_num_seqs=64, policy="lpm")
# ANCHOR_END: configure

if __name__ == "__main__":
    answer = engine.chat_completion([{"role": "user", "content": "What is a block?"}])
    print(answer["choices"][0]["message"]["content"])
