#include "train/async_steps.h"

#include <cmath>
#include <utility>

#include "base/integers.h"
#include "tensor/transfer.h"

namespace lockstep {

AsyncSteps::AsyncSteps(RankSetup& setup, RankState& state, StepExecutor& executor)
    : setup_(setup),
      state_(state),
      executor_(executor),
      links_(setup.ranks.hosts, setup.options.layout),
      options_{.read = {}, .meets = {}} {
  if (setup.on_meta() || setup.dp->serves()) return;
  const auto tokens = static_cast<std::size_t>(setup.dp->own().count * setup.options.T);
  tokens_.resize(tokens);
  targets_.resize(tokens);
}

void AsyncSteps::use(const Options& options) { options_ = options; }

bool AsyncSteps::meets_after(std::int64_t steps) const {
  return steps == meets_at_ || !options_.meets || options_.meets(steps);
}

void AsyncSteps::begin(std::int64_t first, double learning_rate) {
  result_ = {};
  shift_ = first - state_.batches() * setup_.options.B;
  if (setup_.on_meta()) return count_step();
  if (setup_.dp->serves()) upload(state_.control().slice(0, kLearningRate, 1), &learning_rate, setup_.stream);
  if (may_die()) return lead_or_follow_apart();
  if (links_.is_first_server()) return lead();
  setup_.dp->serves() ? follow() : work(first);
}

StepResult AsyncSteps::finish() {
  setup_.mesh.check();
  return result_;
}

// ---- Workers

void AsyncSteps::work(std::int64_t first) {
  for (;;) {
    const TicketNotice notice = links_.hear();
    if (notice.kind == TicketNotice::Kind::end_of_step) return end(notice);
    compute(notice, first);
  }
}

void AsyncSteps::compute(const TicketNotice& begin, std::int64_t first) {
  const std::int64_t each = setup_.options.B / dp();  // samples of a ticket
  ServerLinks& servers = *setup_.groups.servers();
  servers.serve(own_worker());
  if (begin.pulls) executor_.run_part(StepPart::publishing);
  if (!setup_.on_meta()) {
    LOCKSTEP_CHECK(options_.read, "nobody reads the samples of asynchronous steps");
    const std::int64_t own = may_die() ? begin.updates : first - state_.batches() * setup_.options.B;
    options_.read(own + begin.ticket * each, tokens_, targets_);
  }
  executor_.batch().set_apart(tokens_, targets_, begin.ticket % dp() * each, 0, setup_.stream);
  executor_.begin(true, begin.ticket / dp());
  executor_.run_part(StepPart::gradients);
  executor_.batch().fetch_losses(0, setup_.stream);
  executor_.settle_links();
  setup_.stream.synchronize();
  const BatchBuffers::OwnLosses own = executor_.batch().losses_apart(0);
  links_.ask({.losses = own.sum, .targets = own.targets, .wants_meeting = std::exchange(wishes_to_meet_, false)});
  executor_.run_part(StepPart::updates);  // waits until the servers have taken the gradient
  servers.serve_all();
}

// ---- Servers

void AsyncSteps::pull(int worker) {
  setup_.groups.servers()->serve(worker);
  executor_.run_part(StepPart::publishing);
  executor_.settle();
  setup_.groups.servers()->serve_all();
}

void AsyncSteps::apply(int worker) {
  setup_.groups.servers()->serve(worker);
  executor_.begin(true, state_.batches());
  executor_.run_part(StepPart::gradients);
  executor_.run_part(StepPart::updates);
  executor_.settle_links();
  setup_.groups.servers()->serve_all();
}

void AsyncSteps::follow() {
  for (;;) {
    const TicketNotice notice = links_.hear();
    if (notice.kind == TicketNotice::Kind::end_of_step) return end(notice);
    notice.kind == TicketNotice::Kind::apply ? apply(notice.worker) : pull(notice.worker);
  }
}

// Tickets may be dealt up to where the next meeting is.
std::int64_t AsyncSteps::end_of_tickets() const {
  std::int64_t steps = state_.batches() + 1;
  while (!meets_after(steps) && steps * dp() <= order_->next_ticket()) ++steps;
  return steps * dp();
}

void AsyncSteps::begin_all() {
  while (const auto next = order_->begin(end_of_tickets())) {
    const auto worker = static_cast<std::size_t>(next->worker);
    TicketNotice notice{.kind = TicketNotice::Kind::begin, .worker = next->worker, .ticket = next->ticket};
    notice.pulls = std::exchange(versions_[worker], next->version) != next->version;
    links_.tell(next->worker, notice);
    links_.expect(next->worker);
    if (!notice.pulls) continue;
    notice.kind = TicketNotice::Kind::pull;
    links_.tell_servers(notice);
    pull(next->worker);
  }
}

void AsyncSteps::tell_ends(int worker) {
  for (const TicketNotice& end : std::exchange(untold_[static_cast<std::size_t>(worker)], {})) links_.tell(worker, end);
}

// All meet at the next end of a step before which no ticket of a later step was dealt.
void AsyncSteps::hear_wishes() {
  if (!std::exchange(wishes_to_meet_, false)) return;
  std::int64_t steps = std::max(state_.batches() + 1, ceil_div(order_->next_ticket(), dp()));
  while (!order_->may_meet_after(steps * dp())) ++steps;
  if (!meets_at_ || *meets_at_ <= state_.batches()) meets_at_ = steps;
}

// Where all ranks meet, nothing is under way.
void AsyncSteps::check_record() const {
  for (const Arrival& one : options_.record)
    for (std::int64_t steps = one.version / dp() + 1; steps * dp() <= one.update; ++steps)
      if (steps > state_.batches() && meets_after(steps))
        throw UserError(ExitCode::usage,
                        fmt::format("all ranks meet after step {}, and in the record of arrivals update {} was under "
                                    "way then",
                                    steps, one.update),
                        "use the train.save_every, train.eval_every, train.steps and run.trace of the run that was "
                        "recorded");
}

TicketLinks::Asked AsyncSteps::wait_for_request() {
  const Spending waiting(setup_.options.account, TimeUse::wait_dp);
  return links_.wait_for_request();
}

void AsyncSteps::count_update(const Arrival& applied) {
  double host[kStepControls] = {};
  download(host, state_.control(), setup_.stream);
  const TicketRequest& request = requests_[static_cast<std::size_t>(applied.worker)];
  ended_.losses += request.losses;
  ended_.targets += request.targets;
  ended_.norms += host[kNorm];
  ended_.arrivals.push_back(applied);
  if (host[kFinite] == 0 && !bad_) {
    bad_ = applied;
    wishes_to_meet_ = true;
  }
}

// Its updates are made.
TicketNotice AsyncSteps::end_step() {
  const std::int64_t step = state_.batches();
  hear_wishes();
  double host[kStepControls] = {};
  download(host, state_.control(), setup_.stream);
  TicketNotice end{.kind = TicketNotice::Kind::end_of_step,
                   .loss = ended_.targets > 0 ? ended_.losses / static_cast<double>(ended_.targets) : 0,
                   .norm = ended_.norms / static_cast<double>(dp()),
                   .updated = true,
                   .meets = meets_after(step + 1),
                   .updates = static_cast<std::int64_t>(host[kStep]),
                   .arrivals = ended_.arrivals};
  const auto now = std::chrono::steady_clock::now();
  end.seconds = std::chrono::duration<double>(now - std::exchange(began_, now)).count();
  if (bad_ && end.meets) {
    end.updated = false;
    end.worker = static_cast<int>(bad_->worker);
    end.ticket = bad_->ticket;
  }
  LOCKSTEP_CHECK(!end.meets || order_->under_way() == 0, "{} workers compute where all ranks meet",
                 order_->under_way());
  return end;
}

void AsyncSteps::lead() {
  const auto workers = static_cast<std::size_t>(dp());
  const std::int64_t step = state_.batches(), last = (step + 1) * dp();
  if (met_) {
    if (!order_) {
      check_record();
      order_.emplace(static_cast<int>(dp()), setup_.options.sync.staleness, options_.record);
    }
    order_->start(step * dp());
    versions_.assign(workers, step * dp());
    untold_.resize(workers);
    requests_.resize(workers);
  }
  if (met_) began_ = std::chrono::steady_clock::now();
  ended_ = {};
  while (order_->applied() < last) {
    hear_wishes();
    begin_all();
    const std::optional<Arrival> next = order_->apply();
    if (!next) {
      const TicketLinks::Asked asked = wait_for_request();
      requests_[static_cast<std::size_t>(asked.worker)] = asked.request;
      order_->arrive(asked.worker);
      wishes_to_meet_ |= asked.request.wants_meeting;
    } else {
      links_.tell_servers({.kind = TicketNotice::Kind::apply, .worker = static_cast<int>(next->worker)});
      apply(static_cast<int>(next->worker));
      tell_ends(static_cast<int>(next->worker));
      count_update(*next);
    }
  }
  const TicketNotice end = end_step();
  links_.tell_servers(end);
  for (int worker = 0; worker < static_cast<int>(dp()); ++worker) {
    untold_[static_cast<std::size_t>(worker)].push_back(end);
    if (order_->is_idle(worker)) tell_ends(worker);
  }
  this->end(end);
}

// ---- All

// As if workers came in turn. A worker's weights come once in a step: at its end where all meet, else before it begins.
void AsyncSteps::count_step() {
  const std::int64_t first = state_.batches() * dp();
  TicketNotice notice{.pulls = !met_};
  const auto hear = [&] {
    if (!links_.is_first_server()) links_.hear();
  };
  if (!setup_.dp->serves()) {
    hear();
    notice.ticket = first + own_worker();
    compute(notice, 0);
    hear();
  }
  for (int worker = 0; worker < dp() && setup_.dp->serves(); ++worker) {
    const auto order = [&] { links_.is_first_server() ? links_.tell_servers(notice) : hear(); };
    if (links_.is_first_server()) {
      links_.tell(worker, notice);
      links_.expect(worker);
    }
    if (notice.pulls) {
      order();
      pull(worker);
    }
    order();
    apply(worker);
  }
  const TicketNotice end{.meets = meets_after(state_.batches() + 1), .updates = state_.updates() + dp()};
  if (links_.is_first_server()) {
    links_.tell_servers(end);
    for (int worker = 0; worker < dp(); ++worker) links_.tell(worker, end);
  } else if (setup_.dp->serves()) {
    hear();
  }
  this->end(end);
}

void AsyncSteps::publish_to_all() {
  executor_.run_part(StepPart::publishing);
  executor_.settle();
}

void AsyncSteps::end(const TicketNotice& end) {
  met_ = end.meets;
  if (met_ && !may_die()) {
    publish_to_all();
    if (links_.is_first_server()) links_.settle();
  }
  if (met_) bad_.reset();
  if (!end.updated) bad_value_ = fmt::format("the gradient of worker {} on ticket {}", end.worker, end.ticket);
  state_.count_step(end.updates);
  result_ = {.loss = end.loss,
             .norm = end.norm,
             .updated = end.updated,
             .loss_scale = std::ldexp(1.0, state_.loss_scale().exponent),
             .arrivals = end.arrivals,
             .changes = std::exchange(changes_, {}),
             .seconds = end.seconds};
}

}  // namespace lockstep
