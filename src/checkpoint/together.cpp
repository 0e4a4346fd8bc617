#include "checkpoint/together.h"

#include <cstring>
#include <exception>
#include <utility>

namespace lockstep {
namespace {

// Seconds: a disk may be slow, one rank reads back what all have written, and a rank that is gone is named much sooner.
constexpr double kSlowestWork = 3600;

constexpr char kDone = '+', kFailed = '-';  // how a rank's text begins

// Everybody's text, on all ranks. Texts travel as whole words, which communicators know; no rank's is empty.
std::vector<std::string> texts_of_all(Communicator& ranks, const std::string& mine) {
  const auto here = static_cast<std::size_t>(ranks.rank());
  const auto flat = [](std::vector<std::int64_t>& words, std::int64_t from, std::int64_t count) {
    return Tensor(words.data() + from, DType::i64, Device::cpu, {count});
  };
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(ranks.size()));
  lengths[here] = std::ssize(mine);
  const auto gather = [&](Message message) {
    message.op = CommOp::all_gather;
    message.deadline = kSlowestWork;
    ranks.start(message)->wait();
  };
  gather({.out = flat(lengths, 0, ranks.size()), .in = flat(lengths, ranks.rank(), 1)});

  Communicator::Counts counts;
  std::vector<std::int64_t> begins{0};
  for (const std::int64_t length : lengths) {
    counts.push_back((length + 7) / 8);
    begins.push_back(begins.back() + counts.back());
  }
  std::vector<std::int64_t> words(static_cast<std::size_t>(begins.back()));
  std::memcpy(words.data() + begins[here], mine.data(), mine.size());
  gather({.out = flat(words, 0, begins.back()), .in = flat(words, begins[here], counts[here]), .counts = counts});

  std::vector<std::string> all;
  for (std::size_t r = 0; r < lengths.size(); ++r)
    all.emplace_back(reinterpret_cast<const char*>(words.data() + begins[r]), static_cast<std::size_t>(lengths[r]));
  return all;
}

}  // namespace

std::vector<std::string> together(Communicator* ranks, const std::function<std::string()>& work) {
  if (!ranks || ranks->size() == 1) return {work()};
  LOCKSTEP_CHECK(ranks->device() == Device::cpu, "ranks that meet on {}", name_of(ranks->device()));
  std::exception_ptr failure;
  std::string words;
  try {
    words = kDone + work();
  } catch (const std::exception& error) {
    failure = std::current_exception();
    words = std::string(1, kFailed) + error.what();
  } catch (...) {
    failure = std::current_exception();
    words = std::string(1, kFailed) + "an exception without words";
  }
  std::vector<std::string> all;
  try {
    all = texts_of_all(*ranks, words);
  } catch (...) {
    if (failure) std::rethrow_exception(failure);  // what happened here says more than that the others are gone
    throw;
  }
  if (failure) std::rethrow_exception(failure);
  for (std::size_t r = 0; r < all.size(); ++r)
    if (all[r].front() == kFailed) throw CommError(fmt::format("rank {}: {}", r, all[r].substr(1)), true);
  for (std::string& text : all) text.erase(0, 1);
  return all;
}

}  // namespace lockstep
