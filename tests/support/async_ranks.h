// Asynchronous training over thread ranks, what it learned and in which order, and the same by a serial model of it.
#pragma once
#include <functional>
#include <vector>

#include "support/plain_adamw.h"
#include "telemetry/arrivals.h"
#include "train/replica.h"

namespace lockstep::tests {

constexpr double kAsyncRate = 3e-3;

SyncSpec async_sync(std::int64_t bound);
// A small run in fp64 that clips, with tickets of `each` samples.
Replica::Options async_options(const ModelSpec& spec, const LayoutSpec& layout, std::int64_t bound,
                               std::int64_t each = 2);
// dp workers under as many servers.
LayoutSpec async_layout(std::int64_t workers, std::int64_t servers, std::int64_t micro = 1);

struct AsyncLearned {
  std::vector<double> losses;  // by step
  PlainValues weights;
  std::vector<Arrival> arrivals;
};

struct AsyncTraining {
  std::int64_t steps = 20;
  std::vector<Arrival> record = {};                                         // to be repeated
  std::function<bool(std::int64_t steps)> meets = {};                       // none: at the end alone
  std::function<void(int worker, std::int64_t ticket)> before_ticket = {};  // called by the first rank of a worker
  std::function<double(std::int64_t step)> rate = {};                       // none: kAsyncRate
  Device device = Device::cpu;                                              // a GPU: ranks are threads that share it
};
AsyncLearned train_async(const Replica::Options& options, const AsyncTraining& training = {});

// One thread, no messages: the weights after every update, and each gradient at those that the record says.
AsyncLearned simulate_async(const Replica::Options& options, const AsyncTraining& training,
                            const std::vector<Arrival>& record);

// The losses of as many steps of one rank on the same samples, without an update.
std::vector<double> synchronous_losses(const Replica::Options& options, std::int64_t steps);

// A record that could be: of workers that take random times.
std::vector<Arrival> random_record(int workers, std::int64_t steps, std::int64_t bound, unsigned seed,
                                   const std::function<bool(std::int64_t steps)>& meets = {});

void expect_close(const AsyncLearned& many, const AsyncLearned& one, double tolerance, const std::string& what);
void expect_same_bits(const AsyncLearned& a, const AsyncLearned& b, const std::string& what);

}  // namespace lockstep::tests
