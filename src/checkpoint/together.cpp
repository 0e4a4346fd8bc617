#include "checkpoint/together.h"

#include <chrono>
#include <cstring>
#include <exception>
#include <future>
#include <utility>

namespace lockstep {
namespace {

// A rank whose work takes longer says so this often, so that one that stands still is told from one with a slow disk.
constexpr std::chrono::seconds kSign{1};

constexpr char kDone = '+', kFailed = '-';  // how a rank's text begins

// Everybody's text, on all ranks. Texts travel as whole words, which communicators know; no rank's is empty.
std::vector<std::string> texts_of_all(Communicator& ranks, const std::string& mine) {
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
  std::memcpy(words.data() + begins[here], mine.data(), mine.size());
  ranks.all_gather(flat(words, 0, begins.back()), flat(words, begins[here], counts[here]), counts)->wait();

  std::vector<std::string> all;
  for (std::size_t r = 0; r < lengths.size(); ++r)
    all.emplace_back(reinterpret_cast<const char*>(words.data() + begins[r]), static_cast<std::size_t>(lengths[r]));
  return all;
}

// Returns when every rank's work is over: until then they give each other signs of life.
void wait_for_all(Communicator& ranks, const std::future<std::string>& work) {
  for (std::int64_t busy = 1; busy > 0;) {
    busy = work.wait_for(kSign) == std::future_status::ready ? 0 : 1;
    ranks.all_reduce(Tensor(&busy, DType::i64, Device::cpu, {1}))->wait();
  }
}

}  // namespace

std::vector<std::string> together(Communicator* ranks, const std::function<std::string()>& work) {
  if (!ranks || ranks->size() == 1) return {work()};
  LOCKSTEP_CHECK(ranks->device() == Device::cpu, "ranks that meet on {}", name_of(ranks->device()));
  std::exception_ptr failure;
  std::string words;
  std::future<std::string> result = std::async(std::launch::async, work);
  try {
    wait_for_all(*ranks, result);
    words = kDone + result.get();
  } catch (const CommError&) {  // the others are gone; but what happened here says more
    if (result.valid()) result.get();
    throw;
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
