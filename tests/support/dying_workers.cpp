#include "support/dying_workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <random>
#include <thread>

#include "checkpoint/hf_tensors.h"
#include "comm/apart/worker_links.h"
#include "comm/threads/run_ranks.h"
#include "support/devices.h"
#include "support/host_run.h"

namespace lockstep::tests {

namespace {

constexpr double kSeconds = 20;
const char* const kSettings = "alike";

struct Killed : std::runtime_error {
  Killed() : std::runtime_error("killed") {}
};

TokenBatch samples(const Replica::Options& o, unsigned from, std::int64_t first, std::int64_t count) {
  const TokenBatch all = random_batch(o, static_cast<unsigned>(first / o.B) + from);
  const auto at = static_cast<std::ptrdiff_t>(first % o.B * o.T), n = static_cast<std::ptrdiff_t>(count * o.T);
  return {.tokens = {all.tokens.begin() + at, all.tokens.begin() + at + n},
          .targets = {all.targets.begin() + at, all.targets.begin() + at + n}};
}

constexpr unsigned kTraining = 300, kEvaluation = 9000;  // as async_ranks.cpp has them, and others

AsyncSteps::Read reads(const Replica::Options& o, unsigned from,
                       const std::function<void(std::int64_t ticket)>& before) {
  return [&o, from, before](std::int64_t first, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
    const std::int64_t count = std::ssize(tokens) / o.T;
    before(first / count);
    const TokenBatch batch = samples(o, from, first, count);
    std::ranges::copy(batch.tokens, tokens.begin());
    std::ranges::copy(batch.targets, targets.begin());
  };
}

// How long one life of a worker's rank lasts: in its messages and reads. Then it ends at once; or, `torn`, the
// next tensor goes nowhere and the rank comes as far as it does without: it says that its gradient is there, and it is
// not.
class Life {
 public:
  Life(int events, bool torn) : left_(events), torn_(torn) {}
  void pass() {
    if (left_ >= 0 && left_-- == 0) throw Killed();
  }
  bool tears() {
    if (left_ != 0 || !torn_) return false;
    left_ = -1;
    return true;
  }

 private:
  int left_;
  const bool torn_;
};

class MortalLinks final : public apart::FarRanks {
 public:
  MortalLinks(apart::FarRanks& inner, Life& life) : inner_(inner), life_(life) {}
  std::shared_ptr<apart::Link> to(int rank, apart::Channel channel) override {
    if (channel == apart::Channel::tensors && life_.tears()) {
      auto nowhere = std::make_shared<apart::Link>(control::Socket(), "nobody", false);
      nowhere->break_up("it leads nowhere");
      return nowhere;
    }
    life_.pass();
    return inner_.to(rank, channel);
  }
  bool endures() const override { return inner_.endures(); }
  double patience(apart::Channel channel) const override { return inner_.patience(channel); }

 private:
  apart::FarRanks& inner_;
  Life& life_;
};

class Training {
 public:
  Training(const Replica::Options& options, const DyingTraining& how)
      : o_(options),
        how_(how),
        mesh_{.workers = static_cast<int>(o_.layout.dp),
              .line = static_cast<int>(o_.layout.line()),
              .servers = static_cast<int>(o_.layout.servers)},
        names_(logical_tensors(Model(o_.spec, 1, o_.T, DType::f64))),
        addresses_(static_cast<std::size_t>(mesh_.servers)),
        deaths_left_(how.deaths) {
    for (const LogicalTensor& name : names_)
      result_.learned.weights.emplace_back(static_cast<std::size_t>(name.elements()));
  }

  DyingLearned run() {
    std::vector<std::jthread> workers;
    for (int worker = 0; worker < mesh_.workers; ++worker) workers.emplace_back([this, worker] { live(worker); });
    try {
      run_ranks(mesh_.servers, [this](std::unique_ptr<Communicator> party) { serve(*party); });
    } catch (const std::exception& error) {
      result_.failure = error.what();
    }
    over_ = true;
    workers.clear();
    result_.deaths = how_.deaths - std::max(0, deaths_left_.load());
    return std::move(result_);
  }

 private:
  apart::Parties parties(int rank, Communicator* own) const {
    return {.rank = rank, .size = mesh_.size(), .of = [mesh = mesh_](int r) { return mesh.party_of(r); }, .own = own};
  }

  void serve(Communicator& party) {
    const int rank = mesh_.first_server() + party.rank();
    auto acceptor = std::make_unique<apart::Acceptor>("127.0.0.1", keys_, rank, kSettings);
    addresses_[static_cast<std::size_t>(party.rank())] = {
        .rank = rank, .address = "127.0.0.1", .port = acceptor->port()};
    party.barrier()->wait();
    apart::WorkerLinks links(mesh_, rank, std::move(acceptor), kSeconds);
    open_ = true;
    const auto all = apart::make_ranks(parties(rank, party.size() > 1 ? &party : nullptr), links);
    CpuDevice cpu;
    Replica::Options own = o_;
    own.workers_may_die = true;
    own.workers = &links;
    Replica replica(own, {*all, *all}, cpu.memory(), cpu.stream());
    replica.init_weights();
    const auto meets = [&](std::int64_t steps) {
      return steps == how_.training.steps || (how_.training.meets && how_.training.meets(steps));
    };
    // Deaths at random come so often here that they also come to one ticket often.
    replica.async().use(
        {.patience = kSeconds, .most_deaths = how_.poison ? AsyncSteps::Options{}.most_deaths : 1000, .meets = meets});
    for (std::int64_t step = 0; step < how_.training.steps; ++step) {
      replica.set_learning_rate(how_.training.rate ? how_.training.rate(step) : kAsyncRate);
      replica.begin_step(step * o_.B);
      const Replica::Result result = replica.finish_step();
      EXPECT_TRUE(result.updated);
      std::vector<BatchBuffers::Evaluated> evaluated;
      if (meets(step + 1) && how_.evaluations > 0) evaluated = replica.async().evaluate(how_.evaluations);
      if (party.rank() != 0) continue;
      for (const auto& one : evaluated) result_.evaluations.push_back(one.loss);
      AsyncLearned& learned = result_.learned;
      learned.losses.push_back(result.loss);
      learned.arrivals.insert(learned.arrivals.end(), result.arrivals.begin(), result.arrivals.end());
      result_.changes.insert(result_.changes.end(), result.changes.begin(), result.changes.end());
    }
    over_ = true;
    replica.async().dismiss();
    replica.settle();
    const std::lock_guard lock(mutex_);
    for (const Replica::Named& t : replica.tensors()) {
      const auto at = std::ranges::find(names_, t.tensor.name, &LogicalTensor::name) - names_.begin();
      if (t.counted && !t.runs.empty())
        t.put(to_doubles(t.master, cpu.stream()), result_.learned.weights[static_cast<std::size_t>(at)]);
    }
  }

  // One life after the other.
  void live(int worker) {
    std::mt19937 random(how_.seed * 100 + static_cast<unsigned>(worker));
    while (!open_ && !over_) std::this_thread::yield();
    for (std::uint64_t life = 1; !over_; ++life) {
      const bool dies = how_.deaths > 0 && deaths_left_ > 0;
      const int events = dies ? static_cast<int>(random() % static_cast<unsigned>(how_.longest_life)) : -1;
      const int victim = static_cast<int>(random() % static_cast<unsigned>(mesh_.line));
      try {
        run_ranks(mesh_.line, [&](std::unique_ptr<Communicator> party) {
          live_as(worker, party->rank() == victim ? events : -1, life, mesh_.line > 1 ? party.get() : nullptr,
                  party->rank());
        });
        return;
      } catch (const ProgramError& error) {
        ADD_FAILURE() << error.what();
        return;
      } catch (const std::exception&) {
        if (dies && !over_) --deaths_left_;
      }
    }
  }

  void live_as(int worker, int events, std::uint64_t number, Communicator* party, int place) {
    const int rank = worker * mesh_.line + place;
    Life life(events, number % 2 == 0);
    apart::ServerLinks links(
        {.mesh = mesh_, .rank = rank, .keys = keys_, .addresses = addresses_, .settings = kSettings, .life = number});
    MortalLinks mortal(links, life);
    const auto all = apart::make_ranks(parties(rank, party), mortal);
    CpuDevice cpu;
    Replica::Options own = o_;
    own.workers_may_die = true;
    Replica replica(own, {*all, *all}, cpu.memory(), cpu.stream());
    replica.resume(0, 0);
    const auto before = [&](std::int64_t ticket) {
      life.pass();
      if (how_.poison && ticket == *how_.poison) throw Killed();
      if (how_.training.before_ticket && place == 0) how_.training.before_ticket(worker, ticket);
    };
    replica.async().use({.read = reads(o_, kTraining, before),
                         .read_evaluation = reads(o_, kEvaluation, [&](std::int64_t) { life.pass(); }),
                         .meets = {}});
    if (party) party->barrier()->wait();
    links.join();
    replica.async().serve([] { return false; });
  }

  const Replica::Options o_;
  const DyingTraining how_;
  const apart::ApartMesh mesh_;
  const std::vector<LogicalTensor> names_;
  const tcp::WorldKeys keys_ = tcp::WorldKeys::make();
  std::vector<apart::ServerAddress> addresses_;
  std::atomic<bool> open_ = false, over_ = false;
  std::atomic<int> deaths_left_;
  std::mutex mutex_;
  DyingLearned result_;
};

}  // namespace

DyingLearned train_with_deaths(Replica::Options options, const DyingTraining& how) {
  return Training(options, how).run();
}

double evaluation_of(const Replica::Options& o, const PlainValues& weights, std::int64_t batch) {
  Replica::Options alone = o;
  alone.layout = {};
  alone.sync = {};
  HostRun run(alone);
  std::vector<ConstTensor> tensors;
  for (const auto& values : weights)
    tensors.emplace_back(values.data(), DType::f64, Device::cpu, Shape{std::ssize(values)});
  run.replica->init_weights();
  run.replica->load(tensors);
  const TokenBatch all = samples(o, kEvaluation, batch * o.B, o.B);
  return run.replica->evaluate(all.tokens, all.targets);
}

}  // namespace lockstep::tests
