#include "comm/gather_texts.h"

#include <cstring>

namespace lockstep {

// Texts travel as whole words, which communicators know. No word at all goes where nobody has a text.
std::vector<std::string> gather_texts(Communicator& ranks, const std::string& mine) {
  const auto here = static_cast<std::size_t>(ranks.rank());
  const auto flat = [](std::vector<std::int64_t>& words, std::int64_t from, std::int64_t count) {
    return Tensor(words.data() + from, DType::i64, Device::cpu, {count});
  };
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(ranks.size()));
  lengths[here] = std::ssize(mine);
  ranks.all_gather(flat(lengths, 0, ranks.size()), flat(lengths, ranks.rank(), 1))->wait();

  Communicator::Counts counts;
  std::vector<std::int64_t> begins{0};
  for (const std::int64_t length : lengths) {
    counts.push_back((length + 7) / 8);
    begins.push_back(begins.back() + counts.back());
  }
  std::vector<std::int64_t> words(static_cast<std::size_t>(begins.back()));
  if (!words.empty()) {
    std::memcpy(words.data() + begins[here], mine.data(), mine.size());
    ranks.all_gather(flat(words, 0, begins.back()), flat(words, begins[here], counts[here]), counts)->wait();
  }

  std::vector<std::string> all;
  for (std::size_t r = 0; r < lengths.size(); ++r)
    all.emplace_back(reinterpret_cast<const char*>(words.data() + begins[r]), static_cast<std::size_t>(lengths[r]));
  return all;
}

}  // namespace lockstep
