// Asynchronous steps: parameter servers apply each worker's gradient when it comes (docs/synchronization.md).
//
//   worker         is told to begin a ticket: the next of dp parts of the global batch, in the order of samples; gets
//                  the weights of now; forward, backward, which push the gradient; says that it is there
//   first server   deals tickets and decides whose gradient is next (parallel/arrival_order.h)
//   all servers    receive that worker's gradient alone; norm, clipping and update as in a synchronous step
//
// The gradient is that of the ticket's own loss: divided by its own targets, clipped by its own norm. Dropout's masks
// are those that the samples would have in a synchronous run. A step is dp updates, made at its learning rate: so many
// steps consume the samples of as many synchronous ones, and a fast worker does more of them. Who computes while a step
// ends goes on, and hears of the end before it is told to begin again.
//
// Where the run saves or evaluates, and where somebody wishes it, all ranks meet: no ticket of the step after is dealt
// before the step has ended, and workers get the weights of now, so nothing is under way then. Where they do not meet,
// no rank waits for another at the end of a step.
//
// A step is of dp updates on meta too, one ticket for each worker in turn.
//
// Workers that may die (async_steps_apart.cpp). Servers are a world of their own, and so are the ranks of each worker
// (comm/apart/ranks.h). A worker is lost when a connection to it is broken: its ticket is dealt again, to the next that
// is free, and what it has sent and is not applied is dropped. All servers have the whole of a gradient before any of
// them uses it. A worker joins at any moment, and gets the weights with its first ticket. Where servers save or
// evaluate, no worker is at a ticket, and none is waited for: a worker hears of no end of a step. Evaluations are dealt
// in shares, as tickets are. With no worker left the servers wait for some time for one to come.
//
// One thread uses it; setup, state and executor outlive it.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "parallel/arrival_order.h"
#include "parallel/ticket_links.h"
#include "train/steps_in_flight.h"

namespace lockstep {

class AsyncSteps {
 public:
  // Tokens and targets of the samples from number `first` on, of those ever consumed.
  using Read = std::function<void(std::int64_t first, std::span<std::int32_t> tokens, std::span<std::int32_t> targets)>;
  struct Options {
    Read read = {};
    Read read_evaluation = {};  // the same of the samples to evaluate on; where workers may die
    double patience = 60;       // seconds that servers wait for a worker where there is none
    int most_deaths = 4;        // of workers, one after the other, at one ticket: then its samples are to blame
    std::function<bool(std::int64_t steps)> meets;  // whether all ranks meet after so many steps; none: after each
    std::vector<Arrival> record = {};               // to be repeated
  };

  AsyncSteps(RankSetup& setup, RankState& state, StepExecutor& executor);

  // Before the first step.
  void use(const Options& options);

  // Runs a step whose batch begins with sample `first`.
  void begin(std::int64_t first, double learning_rate);
  StepResult finish();
  // Whether all ranks have met at the end of the last step.
  bool met() const { return met_; }
  // All ranks meet at the end of one of the next steps.
  void wish_to_meet() { wishes_to_meet_ = true; }
  // Where workers may die. A worker: computes what it is told to until the run is over, and says when it wants it to
  // stop. Servers: evaluate that many batches of the evaluation, of which the first gets the results, and let the
  // workers go when the run is over.
  void serve(const std::function<bool()>& wants_stop);
  std::vector<BatchBuffers::Evaluated> evaluate(std::int64_t batches);
  void dismiss();
  void note_in(Doing* doing) { doing_ = doing; }
  // In words, after a step that did not update.
  const std::string& bad_value() const { return bad_value_; }

 private:
  // Of the first server, the updates of the step so far.
  struct Ended {
    double losses = 0, norms = 0;
    std::int64_t targets = 0;
    std::vector<Arrival> arrivals;
  };

  void work(std::int64_t first);  // a worker's step
  void compute(const TicketNotice& begin, std::int64_t first);
  void lead();        // the first server's step
  void follow();      // another server's
  void count_step();  // on meta
  void hear_wishes();
  void tell_ends(int worker);
  void check_record() const;
  TicketLinks::Asked wait_for_request();
  void begin_all();
  void apply(int worker);
  void pull(int worker);
  void end(const TicketNotice& end);
  void publish_to_all();
  void count_update(const Arrival& applied);
  TicketNotice end_step();
  // Where workers may die.
  bool may_die() const { return setup_.options.workers_may_die; }
  void lead_or_follow_apart();
  void lead_apart();
  TicketNotice follow_apart(TicketNotice::Kind last);  // what is told, until that
  bool receive(int worker);
  void update();
  bool send_weights(int worker);
  void begin_all_apart();
  void tell_begin(TicketNotice notice, std::int64_t version);
  void hear_workers();
  bool look_at_workers();
  void lose(int worker, bool blames_ticket = true);
  void join(const apart::WorkerLinks::Joiner& joiner);
  void evaluate_share(const TicketNotice& notice);
  bool meets_after(std::int64_t steps) const;
  std::int64_t end_of_tickets() const;
  std::int64_t dp() const { return setup_.options.layout.dp; }
  int own_worker() const { return static_cast<int>(setup_.options.layout.dp_rank(setup_.rank())); }

  RankSetup& setup_;
  RankState& state_;
  StepExecutor& executor_;
  TicketLinks links_;
  Options options_;
  std::optional<ArrivalOrder> order_;              // the first server's
  std::vector<std::int64_t> versions_;             // by worker: of the weights that it has
  std::vector<std::vector<TicketNotice>> untold_;  // by worker: ends of steps that it has not heard of
  std::vector<TicketRequest> requests_;            // by worker, of the gradient that waits
  Ended ended_;                                    // of the step that runs
  std::chrono::steady_clock::time_point began_;    // when the last one ended, or this one began after a meeting
  std::vector<std::int32_t> tokens_, targets_;
  StepResult result_{};
  bool met_ = true, wishes_to_meet_ = false;
  std::optional<Arrival> bad_;            // the first update since the last meeting that was left out
  std::optional<std::int64_t> meets_at_;  // steps; because somebody wishes it
  std::string bad_value_;

  // The first server's, where workers may die.
  using Clock = std::chrono::steady_clock;
  struct OfWorker {
    Clock::time_point begun = Clock::now();  // its ticket, or share
    Clock::time_point lost = Clock::now();   // or when the run began
    std::optional<std::int64_t> share;       // of an evaluation
  };
  std::vector<OfWorker> apart_;
  std::map<std::int64_t, int> deaths_;  // by ticket
  std::vector<WorkerChange> changes_;   // that no step has told yet
  std::set<std::int64_t> shares_left_;  // of an evaluation, that nobody is at
  std::vector<TicketRequest> shares_;   // by share, what came of it
  std::size_t shares_there_ = 0;
  std::int64_t shift_ = 0;                 // of the samples of the step, from those of a run that has left none out
  Clock::time_point seen_ = Clock::now();  // when some worker was there last
  Doing* doing_ = nullptr;
  std::int64_t hearings_ = 0;
};

}  // namespace lockstep
