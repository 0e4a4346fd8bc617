// Asynchronous steps whose workers may die and join (async_steps.h).
#include <algorithm>
#include <utility>

#include "comm/wait_policy.h"
#include "kernels/tree_sum.h"
#include "train/async_steps.h"

namespace lockstep {

namespace {

constexpr double kComeWhole = 2;  // seconds in which all of a worker's connections are there when it says they are

using waiting::seconds_since;

}  // namespace

// ---- Workers

void AsyncSteps::serve(const std::function<bool()>& wants_stop) {
  for (;;) {
    const TicketNotice notice = links_.hear();
    if (notice.kind == TicketNotice::Kind::over) return;
    wishes_to_meet_ |= wants_stop();
    if (doing_ && notice.kind == TicketNotice::Kind::begin) doing_->begin_step(notice.ticket / dp() + 1);
    notice.kind == TicketNotice::Kind::evaluate ? evaluate_share(notice) : compute(notice, 0);
  }
}

void AsyncSteps::evaluate_share(const TicketNotice& notice) {
  const std::int64_t each = setup_.options.B / dp();
  ServerLinks& servers = *setup_.groups.servers();
  BatchBuffers& batch = executor_.batch();
  servers.serve(own_worker());
  if (notice.pulls) executor_.run_part(StepPart::publishing);
  options_.read_evaluation(notice.ticket * each, tokens_, targets_);
  batch.set_apart(tokens_, targets_, notice.ticket % dp() * each, 0, setup_.stream);
  executor_.begin(false, 0);
  for (const Action& action : setup_.step.evaluation) executor_.run(action);
  executor_.settle();
  batch.fetch_losses(0, setup_.stream);
  batch.fetch_likeliest(0, setup_.stream);
  setup_.stream.synchronize();
  const BatchBuffers::Evaluated own = batch.evaluated_apart(0);
  links_.tell_share({.losses = own.loss, .targets = own.targets, .likeliest = own.likeliest});
  servers.serve_all();
}

// ---- All servers

void AsyncSteps::lead_or_follow_apart() {
  if (links_.is_first_server()) return lead_apart();
  end(follow_apart(TicketNotice::Kind::end_of_step));
}

TicketNotice AsyncSteps::follow_apart(TicketNotice::Kind last) {
  using Kind = TicketNotice::Kind;
  apart::WorkerLinks& workers = *setup_.options.workers;
  for (;;) {
    const TicketNotice notice = links_.hear();
    if (notice.kind == last) return notice;
    if (notice.kind == Kind::pull) send_weights(notice.worker);
    if (notice.kind == Kind::apply && receive(notice.worker)) update();
    if (notice.kind == Kind::lost) workers.let_go(notice.worker);
    if (notice.kind == Kind::join)
      links_.all_servers(workers.take_in({notice.worker, static_cast<std::uint64_t>(notice.ticket)}, kComeWhole));
  }
}

bool AsyncSteps::send_weights(int worker) {
  pull(worker);
  return links_.all_servers(!setup_.options.workers->is_lost(worker));
}

// Whether all of its gradient is there, on all servers. Else nobody uses any of it.
bool AsyncSteps::receive(int worker) {
  setup_.groups.servers()->serve(worker);
  executor_.begin(true, state_.batches());
  executor_.run_part(StepPart::gradients);
  executor_.settle_links();
  state_.gradients().wait();
  setup_.groups.servers()->serve_all();
  return links_.all_servers(!setup_.options.workers->is_lost(worker));
}

void AsyncSteps::update() {
  executor_.run_part(StepPart::updates);
  executor_.settle_links();
}

// ---- The first server

void AsyncSteps::lead_apart() {
  using Kind = TicketNotice::Kind;
  const std::int64_t step = state_.batches(), last = (step + 1) * dp();
  if (!order_) {
    order_.emplace(static_cast<int>(dp()), setup_.options.sync.staleness);
    for (int worker = 0; worker < static_cast<int>(dp()); ++worker) order_->lose(worker);  // none has come yet
    const auto workers = static_cast<std::size_t>(dp());
    versions_.assign(workers, -1);
    requests_.resize(workers);
    apart_.resize(workers);
  }
  if (met_) {
    order_->start(step * dp());
    deaths_.clear();
    began_ = std::chrono::steady_clock::now();
  }
  ended_ = {};
  while (order_->applied() < last) {
    hear_wishes();
    look_at_workers();
    begin_all_apart();
    const std::optional<int> worker = order_->next();
    if (!worker) {
      hear_workers();
      continue;
    }
    links_.tell_servers({.kind = Kind::apply, .worker = *worker});
    if (!receive(*worker)) {
      lose(*worker);
      continue;
    }
    update();
    const std::optional<Arrival> applied = order_->apply();
    deaths_.erase(applied->ticket);
    count_update(*applied);
  }
  const TicketNotice end = end_step();
  links_.tell_servers(end);
  this->end(end);
}

void AsyncSteps::begin_all_apart() {
  while (const auto next = order_->begin(end_of_tickets()))
    tell_begin({.kind = TicketNotice::Kind::begin, .worker = next->worker, .ticket = next->ticket, .updates = shift_},
               next->version);
}

// With the weights of now, which are of that version, if it has others.
void AsyncSteps::tell_begin(TicketNotice notice, std::int64_t version) {
  const auto worker = static_cast<std::size_t>(notice.worker);
  notice.pulls = std::exchange(versions_[worker], version) != version;
  apart_[worker].begun = Clock::now();
  links_.tell(notice.worker, notice);
  links_.expect(notice.worker);
  if (!notice.pulls) return;
  links_.tell_servers({.kind = TicketNotice::Kind::pull, .worker = notice.worker});
  if (!send_weights(notice.worker)) lose(notice.worker, false);  // it has not begun
}

// Waits for any of them to say, be or come to something.
void AsyncSteps::hear_workers() {
  const Spending waiting(setup_.options.account, TimeUse::wait_dp);
  const InCall held(doing_, "tickets", "recv", ++hearings_);
  const auto began = Clock::now();
  apart::WorkerLinks& workers = *setup_.options.workers;
  waiting::Backoff backoff = waiting::wrapper_backoff();
  for (;; backoff.pause()) {
    if (look_at_workers()) return;
    const auto asked = links_.take_request([&](int worker) { return workers.is_lost(worker); });
    if (asked) {
      const auto worker = static_cast<std::size_t>(asked->worker);
      if (const auto share = std::exchange(apart_[worker].share, std::nullopt)) {
        shares_[static_cast<std::size_t>(*share)] = asked->request;
        ++shares_there_;
        return;
      }
      requests_[worker] = asked->request;
      order_->arrive(asked->worker);
      wishes_to_meet_ |= asked->request.wants_meeting;
      return;
    }
    if (seconds_since(std::max(seen_, began)) > options_.patience)
      throw EnvironmentError(fmt::format(
          "no worker has come for {:.0f} s; see `lockstep doctor` of the run folder for why they have ended",
          options_.patience));
  }
}

// Whether any was lost or has joined.
bool AsyncSteps::look_at_workers() {
  apart::WorkerLinks& workers = *setup_.options.workers;
  bool changed = false;
  for (int worker = 0; worker < static_cast<int>(dp()); ++worker) {
    if (!workers.is_there(worker)) continue;
    seen_ = Clock::now();
    if (!workers.is_lost(worker)) continue;
    lose(worker);
    changed = true;
  }
  for (const apart::WorkerLinks::Joiner& joiner : workers.joiners()) {
    join(joiner);
    changed = true;
  }
  return changed;
}

void AsyncSteps::lose(int worker, bool blames_ticket) {
  OfWorker& of = apart_[static_cast<std::size_t>(worker)];
  WorkerChange change{.update = order_->applied(), .worker = worker, .why = setup_.options.workers->why_lost(worker)};
  links_.tell_servers({.kind = TicketNotice::Kind::lost, .worker = worker});
  setup_.options.workers->let_go(worker);
  links_.forget(worker);
  change.ticket = order_->lose(worker);
  if (const auto share = std::exchange(of.share, std::nullopt)) shares_left_.insert(*share);
  if (change.ticket) change.seconds = seconds_since(of.begun);
  of.lost = Clock::now();
  changes_.push_back(change);
  if (!change.ticket || !blames_ticket || ++deaths_[*change.ticket] < options_.most_deaths) return;
  const std::int64_t each = setup_.options.B / dp(), first = *change.ticket * each;
  throw EnvironmentError(
      fmt::format("{} workers in a row were lost at ticket {} (samples {} to {}, the last with worker {}: {}): these "
                  "samples, or what "
                  "is computed on them, are to blame, and not a host; see `lockstep doctor` of the run folder",
                  options_.most_deaths, *change.ticket, first, first + each - 1, worker, change.why));
}

void AsyncSteps::join(const apart::WorkerLinks::Joiner& joiner) {
  apart::WorkerLinks& workers = *setup_.options.workers;
  if (workers.is_there(joiner.worker)) lose(joiner.worker);  // a process that was this worker before
  links_.tell_servers(
      {.kind = TicketNotice::Kind::join, .worker = joiner.worker, .ticket = static_cast<std::int64_t>(joiner.life)});
  if (!links_.all_servers(workers.take_in(joiner, kComeWhole))) {
    links_.tell_servers({.kind = TicketNotice::Kind::lost, .worker = joiner.worker});
    return workers.let_go(joiner.worker);
  }
  links_.forget(joiner.worker);
  const auto worker = static_cast<std::size_t>(joiner.worker);
  versions_[worker] = -1;
  order_->join(joiner.worker);
  seen_ = Clock::now();
  changes_.push_back({.update = order_->applied(),
                      .worker = joiner.worker,
                      .joins = true,
                      .seconds = seconds_since(apart_[worker].lost)});
}

std::vector<BatchBuffers::Evaluated> AsyncSteps::evaluate(std::int64_t batches) {
  using Kind = TicketNotice::Kind;
  std::vector<BatchBuffers::Evaluated> all(static_cast<std::size_t>(batches));
  if (!links_.is_first_server()) {
    follow_apart(Kind::evaluate);
    return all;
  }
  LOCKSTEP_CHECK(order_ && order_->under_way() == 0, "an evaluation while workers are at tickets");
  const auto shares = static_cast<std::size_t>(batches * dp());
  shares_.assign(shares, {});
  shares_there_ = 0;
  for (std::int64_t share = 0; share < std::ssize(shares_); ++share) shares_left_.insert(share);
  while (shares_there_ < shares) {
    look_at_workers();
    for (int worker = 0; worker < static_cast<int>(dp()) && !shares_left_.empty(); ++worker) {
      std::optional<std::int64_t>& share = apart_[static_cast<std::size_t>(worker)].share;
      if (!order_->is_here(worker) || share) continue;
      share = *shares_left_.begin();
      shares_left_.erase(shares_left_.begin());
      tell_begin({.kind = Kind::evaluate, .worker = worker, .ticket = *share}, order_->applied());
    }
    if (shares_there_ < shares) hear_workers();
  }
  links_.tell_servers({.kind = Kind::evaluate});
  // Added up in the tree that ranks add them up in, of which servers have none (comm/sum_order.h).
  const auto ranks = static_cast<std::size_t>(setup_.mesh.replicas().size()), workers = static_cast<std::size_t>(dp());
  const std::vector<std::uint8_t> joins = balanced_joins(static_cast<int>(ranks));
  for (std::size_t batch = 0; batch < all.size(); ++batch) {
    std::vector<double> losses(ranks);
    for (std::size_t worker = 0; worker < workers; ++worker) {
      const TicketRequest& share = shares_[batch * workers + worker];
      losses[worker] = share.losses;
      all[batch].likeliest += share.likeliest;
      all[batch].targets += share.targets;
    }
    double sum = 0;
    const Tensor out(&sum, DType::f64, Device::cpu, {1});
    std::vector<ConstTensor> ins;
    for (double& loss : losses) ins.push_back(Tensor(&loss, DType::f64, Device::cpu, {1}));
    tree_sum({.outs = {&out, 1}, .ins = ins, .joins = joins}, setup_.stream);
    all[batch].loss = all[batch].targets > 0 ? sum / static_cast<double>(all[batch].targets) : 0;
  }
  return all;
}

void AsyncSteps::dismiss() {
  if (!links_.is_first_server() || !order_) return;
  for (int worker = 0; worker < static_cast<int>(dp()); ++worker)
    if (order_->is_here(worker) && !setup_.options.workers->is_lost(worker))
      links_.tell(worker, {.kind = TicketNotice::Kind::over});
  links_.settle();
}

}  // namespace lockstep
