#include "checkpoint/all_or_none.h"

#include <chrono>
#include <exception>
#include <future>
#include <utility>

#include "comm/gather_texts.h"

namespace lockstep {
namespace {

// A rank whose work takes longer says so this often, so that one that hangs is told from one with a slow disk.
constexpr std::chrono::seconds kSign{1};

constexpr char kDone = '+', kFailed = '-';  // how a rank's text begins

// Returns when every rank's work is over: until then they give each other signs of life.
void wait_for_all(Communicator& ranks, const std::future<std::string>& work) {
  for (std::int64_t busy = 1; busy > 0;) {
    busy = work.wait_for(kSign) == std::future_status::ready ? 0 : 1;
    ranks.all_reduce(Tensor(&busy, DType::i64, Device::cpu, {1}))->wait();
  }
}

}  // namespace

std::vector<std::string> all_or_none(Communicator* ranks, const std::function<std::string()>& work) {
  if (!ranks || ranks->size() == 1) return {work()};
  LOCKSTEP_CHECK(ranks->device() == Device::cpu, "ranks that meet on {}", name_of(ranks->device()));
  std::exception_ptr failure;
  std::string own;
  std::future<std::string> result = std::async(std::launch::async, work);
  try {
    wait_for_all(*ranks, result);
    own = kDone + result.get();
  } catch (const CommError&) {  // the others are gone; but what happened here says more
    if (result.valid()) result.get();
    throw;
  } catch (const std::exception& error) {
    failure = std::current_exception();
    own = std::string(1, kFailed) + error.what();
  } catch (...) {
    failure = std::current_exception();
    own = std::string(1, kFailed) + "an exception without a message";
  }
  std::vector<std::string> all;
  try {
    all = gather_texts(*ranks, own);
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
