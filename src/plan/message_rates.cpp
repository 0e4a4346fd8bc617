#include "plan/message_rates.h"

#include <algorithm>
#include <chrono>

#include "base/median.h"
#include "base/quartile.h"
#include "comm/threads/run_ranks.h"

namespace lockstep {

MessageRates measure_messages(Communicator& comm, int cores, const MessageTrial& trial) {
  constexpr std::int64_t kTouched = 16 << 20;
  constexpr int kSmallCalls = 50;
  const int ranks = comm.size();
  const std::int64_t n = std::max<std::int64_t>(256, kTouched / 8 / ranks / ranks) * ranks;
  Ledger ledger;
  std::unique_ptr<Memory> memory = comm.memory(ledger);  // where gradients are
  if (!memory) memory = make_memory(Device::cpu, ledger);
  const Buffer own = memory->allocate(n * size_of(DType::f32), Tag::communication),
               all = memory->allocate(n * size_of(DType::f32), Tag::communication);
  const Tensor mine = view(own, DType::f32, {n}), others = view(all, DType::f32, {n});
  std::fill_n(mine.data<float>(), n, 0.0F);
  std::fill_n(others.data<float>(), n, 0.0F);

  using Clock = std::chrono::steady_clock;
  const auto seconds = [&](int calls, const auto& call) {
    std::vector<double> times;
    for (int round = 0; round < trial.rounds; ++round) {
      call()->wait();
      const auto begin = Clock::now();
      for (int i = 0; i < calls; ++i) call()->wait();
      times.push_back(std::chrono::duration<double>(Clock::now() - begin).count() / calls);
    }
    return trial.quickest ? lower_quartile(std::move(times)) : median(std::move(times));
  };
  double times[] = {seconds(kSmallCalls, [&] { return comm.all_reduce(mine.slice(0, 0, 2)); }),
                    seconds(1, [&] { return comm.all_reduce(mine); }), seconds(1, [&] {
                      return comm.all_gather(others, mine.slice(0, comm.rank() * (n / ranks), n / ranks));
                    })};
  comm.all_reduce(Tensor(times, DType::f64, Device::cpu, {3}), {Reduction::max})->wait();  // the slowest rank's
  const auto rate = [&](std::int64_t elements, double slowest) {
    const double taken = std::max(slowest - times[0], slowest / 4) * std::min(ranks, cores);
    return static_cast<double>(elements * size_of(DType::f32)) / taken;
  };
  return {.latency = times[0], .summed = rate(2 * ranks * n, times[1]), .copied = rate((ranks + 1) * n, times[2])};
}

MessageRates measure_messages(int ranks, int cores, const MessageTrial& trial) {
  MessageRates rates;
  run_ranks(ranks, [&](std::unique_ptr<Communicator> comm) {
    const MessageRates measured = measure_messages(*comm, cores, trial);
    if (comm->rank() == 0) rates = measured;
  });
  return rates;
}

}  // namespace lockstep
