#include "bench/comm_bench.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>

#include "base/median.h"
#include "bench/comm_trial.h"
#include "comm/delayed.h"
#include "comm/threads/run_ranks.h"
#include "plan/plan.h"
#include "plan/timed_tensors.h"
#include "telemetry/number_text.h"

namespace lockstep {

namespace {

using Backend = CommBenchRow::Backend;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kElement = CommTrial::kElement;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 29;  // beyond it MPI's own has no count for it (mpi/transport.h)
constexpr double kLong = 4e-3;                              // seconds: a timing this long needs no second call
constexpr int kMostCalls = 1000, kFewestRounds = 5;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Seconds of one of `calls`; the first, which wakes threads and fills caches, is not counted.
double time_of(Communicator& comm, int calls, const std::function<void()>& call) {
  call();
  comm.barrier()->wait();
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i) call();
  return seconds_since(begin) / calls;
}

// Makes every rank of a backend that this process has do something with its tensors, and gives the slowest's time.
using Work = std::function<double(Communicator& comm, const RankTensors& tensors)>;
using Ranks = std::function<double(const Work& work)>;

struct Contender {
  Backend backend;
  std::optional<Algorithm> algorithm;  // none: the copy
  Ranks ranks;
  int calls = 1;
  std::vector<double> times = {};  // of one call, by round
};

double run(const Contender& contender, const CommTrial& s) {
  return contender.ranks([&](Communicator& comm, const RankTensors& tensors) {
    if (contender.algorithm) {
      const Message m = message_of(s, *contender.algorithm, comm.rank(), tensors);
      return time_of(comm, contender.calls, [&] { comm.start(m)->wait(); });
    }
    const auto bytes = static_cast<std::size_t>(least_copied(s));
    return time_of(comm, contender.calls, [&] {
      std::memcpy(tensors.y.raw(), tensors.x.raw(), bytes);
      asm volatile("" : : "r"(tensors.y.raw()) : "memory");  // a copy that nobody reads must still be made
    });
  });
}

bool applies(CommOp op, Backend backend, Algorithm algorithm) {
  if (algorithm == Algorithm::native) return backend == Backend::mpi && op != CommOp::all_to_all;
  return algorithm == Algorithm::canonical || reduces(op);
}

std::vector<Algorithm> algorithms_of(const CommBenchOptions& options, CommOp op, Backend backend, int ranks) {
  std::vector<Algorithm> all;
  for (const Algorithm algorithm : options.algorithms)
    if (applies(op, backend, algorithm) && (ranks > 1 || all.empty())) all.push_back(algorithm);
  return all;
}

// Every tensor of this process. Threads' are there on rank 0 alone.
class Tensors {
 public:
  Tensors(int threads, Communicator* process, std::int64_t elements) : heap_(make_memory(Device::cpu, ledger_)) {
    const auto pair = [&](Memory& memory) {
      const auto tensor = [&] {
        buffers_.push_back(memory.allocate(elements * kElement, Tag::communication));
        return view(buffers_.back(), DType::f32, {elements});
      };
      const Tensor x = tensor();
      return RankTensors{x, tensor()};
    };
    for (int i = 0; i < threads; ++i) threads_.push_back(pair(*heap_));
    if (!process) return;
    shared_ = process->memory(ledger_);
    native_ = pair(*heap_);
    process_ = shared_ ? pair(*shared_) : native_;
  }
  const RankTensors& of_thread(int rank) const { return threads_[static_cast<std::size_t>(rank)]; }
  const RankTensors& of_process(std::optional<Algorithm> algorithm) const {
    return algorithm == Algorithm::native ? native_ : process_;
  }

 private:
  Ledger ledger_;
  std::unique_ptr<Memory> heap_, shared_;
  std::vector<Buffer> buffers_;
  std::vector<RankTensors> threads_;
  RankTensors process_, native_;
};

class Contest {
 public:
  Contest(const CommBenchOptions& options, Communicator* processes, const std::atomic<bool>& stop)
      : options_(options), processes_(processes), stop_(stop) {}

  // Rows of one setting; none when it was stopped.
  std::vector<CommBenchRow> measure(const CommTrial& s) {
    const Tensors tensors(prints() ? s.ranks : 0, processes_, s.elements);
    std::vector<Contender> all = contenders(s, tensors);
    for (const Contender& contender : all)
      if (contender.algorithm)
        contender.ranks([&](Communicator& comm, const RankTensors& tensors) {
          prove(comm, s, *contender.algorithm, tensors);
          return 0.0;
        });
    const std::vector<double> once = round(all, s, false);
    if (once.empty()) return {};
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i].calls = static_cast<int>(std::clamp(kLong / std::max(once[i], 1e-9), 1.0, double(kMostCalls)));
    const auto begin = Clock::now();
    for (bool over = false; !over;) {
      const bool enough = std::ssize(all[0].times) + 1 >= kFewestRounds && seconds_since(begin) >= options_.seconds;
      const std::vector<double> times = round(all, s, enough);
      if (times.empty()) return {};
      for (std::size_t i = 0; i < all.size(); ++i) all[i].times.push_back(times[i]);
      over = times.back() > 0;
    }
    return rows(all, s);
  }

  bool prints() const { return !processes_ || processes_->rank() == 0; }

 private:
  std::vector<Contender> contenders(const CommTrial& s, const Tensors& tensors) const {
    std::vector<Contender> all;
    const auto add = [&](Backend backend, const Ranks& ranks) {
      for (const Algorithm algorithm : algorithms_of(options_, s.op, backend, s.ranks))
        all.push_back({backend, algorithm, ranks});
      if (least_copied(s) > 0) all.push_back({backend, std::nullopt, ranks});
    };
    add(Backend::threads, [this, &s, &tensors](const Work& work) {
      std::vector<double> times(static_cast<std::size_t>(s.ranks));
      if (prints())
        run_ranks(s.ranks, [&](std::unique_ptr<Communicator> comm) {
          std::optional<SimulatedLink> link = simulated_link();
          if (link) comm = std::make_unique<Delayed>(std::move(comm), *link);
          times[static_cast<std::size_t>(comm->rank())] = work(*comm, tensors.of_thread(comm->rank()));
        });
      return std::ranges::max(times);
    });
    if (processes_) add(Backend::mpi, {});
    for (Contender& c : all)
      if (c.backend == Backend::mpi)
        c.ranks = [this, &tensors, algorithm = c.algorithm](const Work& work) {
          return work(*processes_, tensors.of_process(algorithm));
        };
    return all;
  }

  std::optional<SimulatedLink> simulated_link() const {
    if (!options_.link) return std::nullopt;
    return SimulatedLink(options_.link->latency_seconds, options_.link->bytes_per_second);
  }
  double link_seconds(const CommTrial& s, Algorithm algorithm) const {
    const std::optional<SimulatedLink> link = simulated_link();
    const Tensor shadow(nullptr, DType::f32, Device::meta, {s.elements});
    double most = 0;
    for (int rank = 0; link && rank < s.ranks; ++rank)
      most = std::max(most, link->seconds(message_of(s, algorithm, rank, {shadow, shadow}), rank, s.ranks));
    return most;
  }

  // Each once, the slowest rank's times; then whether any rank says it was the last. Empty where one is to stop.
  std::vector<double> round(const std::vector<Contender>& all, const CommTrial& s, bool last) {
    std::vector<double> times(all.size());
    std::vector<std::size_t> turns(all.size());
    std::iota(turns.begin(), turns.end(), std::size_t{0});
    std::ranges::shuffle(turns, order_);  // none always starts with the caches of the same predecessor
    for (const std::size_t turn : turns) {
      if (processes_) processes_->barrier()->wait();
      times[turn] = run(all[turn], s);
    }
    times.push_back(last);
    times.push_back(stop_);
    if (processes_)
      processes_->all_reduce(Tensor(times.data(), DType::f64, Device::cpu, {std::ssize(times)}), {Reduction::max})
          ->wait();
    if (times.back() > 0) return {};
    times.pop_back();
    return times;
  }

  std::vector<CommBenchRow> rows(const std::vector<Contender>& all, const CommTrial& s) const {
    const auto time_over = [&](Backend backend, std::optional<Algorithm> algorithm, const std::vector<double>& times) {
      for (const Contender& other : all)
        if (other.backend == backend && other.algorithm == algorithm) {
          std::vector<double> ratios;
          for (std::size_t i = 0; i < times.size(); ++i) ratios.push_back(other.times[i] / times[i]);
          return median(std::move(ratios));
        }
      return 0.0;
    };
    std::vector<CommBenchRow> rows;
    for (const Contender& c : all) {
      if (!c.algorithm) continue;
      rows.push_back({.backend = c.backend,
                      .op = s.op,
                      .algorithm = *c.algorithm,
                      .ranks = s.ranks,
                      .bytes = s.elements * kElement,
                      .sent = most_sent(s, *c.algorithm),
                      .rounds = static_cast<int>(c.times.size()),
                      .seconds = median(c.times),
                      .of_copy = time_over(c.backend, std::nullopt, c.times),
                      .over_native = time_over(Backend::mpi, Algorithm::native, c.times),
                      .link_seconds = link_seconds(s, *c.algorithm)});
    }
    return rows;
  }

  const CommBenchOptions& options_;
  Communicator* const processes_;
  const std::atomic<bool>& stop_;
  std::mt19937 order_;  // the same on all processes
};

[[noreturn]] void refuse(const std::string& problem, const std::string& remedy, ExitCode code = ExitCode::usage) {
  throw UserError(code, problem, remedy);
}

}  // namespace

std::string_view name_of(Backend backend) { return backend == Backend::threads ? "threads" : "mpi"; }

bool can_bench(CommOp op) { return !point_to_point(op) && op != CommOp::barrier; }

CommBenchOptions settle(CommBenchOptions options, int processes) {
  if (processes && options.link)
    refuse("--link under MPI: a simulated link is between ranks that are threads", "start without mpirun");
  if (options.ranks.empty()) options.ranks = processes ? std::vector{processes} : std::vector{2, 4, 8};
  for (const int ranks : options.ranks) {
    if (processes && ranks != processes)
      refuse(fmt::format("--ranks {} under MPI, whose ranks are its {} processes", ranks, processes),
             "leave --ranks out, or start without mpirun");
    if (processes == 1) refuse("bench comm of one process: it exchanges nothing", "start two or more");
    if (ranks < 2 || ranks > kMostSummands)
      refuse(fmt::format("--ranks {}{}", ranks, ranks == 1 ? ": one rank exchanges nothing" : ""),
             fmt::format("give 2 to {}", kMostSummands));
  }
  const int most_ranks = std::ranges::max(options.ranks);
  for (const std::int64_t size : options.sizes)
    if (size < kElement * most_ranks || size > kMostBytes)
      refuse(fmt::format("--sizes {}", byte_text(size)),
             fmt::format("give {} (an element for each of {} ranks) to {}", byte_text(kElement * most_ranks),
                         most_ranks, byte_text(kMostBytes)));
  if (options.algorithms.empty())
    for (const Algorithm algorithm : {Algorithm::canonical, Algorithm::ring, Algorithm::tree, Algorithm::native})
      options.algorithms.push_back(algorithm);
  else if (!processes && std::ranges::count(options.algorithms, Algorithm::native))
    refuse("--algorithms native without MPI: on threads it is canonical", "start under mpirun, or leave it out");
  for (const CommOp op : options.ops) {
    const bool any = std::ranges::any_of(options.algorithms, [&](Algorithm algorithm) {
      return applies(op, Backend::threads, algorithm) || (processes && applies(op, Backend::mpi, algorithm));
    });
    if (!any) refuse(fmt::format("{} is the same under each of these --algorithms", name_of(op)), "add canonical");
  }
  const std::int64_t needed = 2 * (most_ranks + 2 * processes) * std::ranges::max(options.sizes);
  if (const std::int64_t free = available_memory(); needed > free)
    refuse(fmt::format("the tensors need {}, {} are free", byte_text(needed), byte_text(free)),
           "give smaller --sizes or fewer --ranks", ExitCode::does_not_fit);
  return options;
}

bool run_comm_bench(const CommBenchOptions& options, Communicator* processes, const std::atomic<bool>& stop,
                    const std::function<void(const CommBenchRow&)>& show) {
  Contest contest(options, processes, stop);
  for (const CommOp op : options.ops)
    for (const int ranks : options.ranks)
      for (const std::int64_t size : options.sizes) {
        const std::vector<CommBenchRow> rows = contest.measure({op, ranks, size / kElement / ranks * ranks});
        if (rows.empty()) return false;
        if (contest.prints()) std::ranges::for_each(rows, show);
      }
  return true;
}

}  // namespace lockstep
