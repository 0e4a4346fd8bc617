// Small values of the host between ranks: counts, losses, whether anybody wants to stop, words.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace lockstep {

// `value` becomes the sum over the group's ranks, the same on all of them. Waits for it.
inline void sum_over(Communicator& ranks, double& value) {
  ranks.all_reduce(Tensor(&value, DType::f64, ranks.device(), {1}))->wait();
}
inline void sum_over(Communicator& ranks, std::span<double> values) {
  ranks.all_reduce(Tensor(values.data(), DType::f64, ranks.device(), {std::ssize(values)}))->wait();
}
inline void sum_over(Communicator& ranks, std::int64_t& value) {
  ranks.all_reduce(Tensor(&value, DType::i64, ranks.device(), {1}))->wait();
}
inline void sum_over(Communicator& ranks, std::span<std::int64_t> values) {
  ranks.all_reduce(Tensor(values.data(), DType::i64, ranks.device(), {std::ssize(values)}))->wait();
}

// `text` becomes the root's on all ranks. Waits for it.
inline void share_text(Communicator& ranks, std::string& text, int root) {
  std::int64_t size = std::ssize(text);
  ranks.broadcast(Tensor(&size, DType::i64, ranks.device(), {1}), root)->wait();
  std::vector<std::int64_t> words(static_cast<std::size_t>(size + 7) / 8);  // the smallest type that is sent is larger
  if (words.empty()) return text.clear();
  if (ranks.rank() == root) text.copy(reinterpret_cast<char*>(words.data()), text.size());
  ranks.broadcast(Tensor(words.data(), DType::i64, ranks.device(), {std::ssize(words)}), root)->wait();
  text.assign(reinterpret_cast<const char*>(words.data()), static_cast<std::size_t>(size));
}

}  // namespace lockstep
