// What the first parameter server and the others tell each other beside tensors, where gradients are applied when they
// come (train/async_steps.h).
//
//   request   a worker has a gradient to push: its losses, and whether its rank wishes that all ranks meet
//   notice    of the first server: to a worker, to begin a ticket; to the other servers, whose gradient to apply and
//             who gets weights; to all, that a step has ended, and what came of it
//
// A worker is a replica, pp · cp · tp ranks: the first of them sends and receives, and tells the others. A notice to a
// worker waits for nothing but the last one to that worker: the first server never waits for a worker that computes.
//
// All ranks construct theirs at the same point. One thread uses it; it is destroyed before the world.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "spec/layout/layout_spec.h"
#include "telemetry/arrivals.h"

namespace lockstep {

struct TicketRequest {
  double losses = 0;         // their sum
  std::int64_t targets = 0;  // that they are of
  bool wants_meeting = false;
  std::int64_t likeliest = 0;  // evaluate: targets that nothing was likelier than
};

struct TicketNotice {
  // The last four where workers may be lost and join (train/async_steps.h).
  enum class Kind { begin, apply, pull, end_of_step, lost, join, evaluate, over };
  Kind kind = Kind::begin;
  int worker = 0;
  std::int64_t ticket = 0;  // join: the life that the worker is in; evaluate: the share
  bool pulls = false;       // begin: the weights of now come first
  // end_of_step
  double loss = 0, norm = 0;
  bool updated = true;       // false: the update of `worker` on `ticket` was left out, its norm not being finite
  bool meets = false;        // all ranks have come to this end, and workers get the weights of now
  std::int64_t updates = 0;  // begin, where workers may be lost: samples that the run has left out
  double seconds = 0;        // that the step took the servers
  std::vector<Arrival> arrivals = {};  // the step's, dp of them
};

class TicketLinks {
 public:
  // `world`: of the layout's ranks, on the host.
  TicketLinks(Communicator& world, const LayoutSpec& layout);
  ~TicketLinks();

  bool is_first_server() const { return first_server_; }

  // Of a worker's rank, and of a server that is not the first.
  TicketNotice hear();
  // Of a worker.
  void ask(const TicketRequest& request);
  // What came of a share of the evaluation, the same on all of the worker's ranks.
  void tell_share(const TicketRequest& share);

  // Of the first server. A worker that was told to begin will ask: expect() is told so, and wait_for_request() waits
  // until one of those that are expected has.
  void expect(int worker);
  struct Asked {
    int worker;
    TicketRequest request;
  };
  Asked wait_for_request();
  std::optional<Asked> take_request(const std::function<bool(int worker)>& lost);  // one that is there, if any is
  void forget(int worker);  // it is lost, or has joined: nothing is expected of it
  // Whether all servers say so. All of them call it.
  bool all_servers(bool say);
  void tell(int worker, const TicketNotice& notice);
  void tell_servers(const TicketNotice& notice);
  void settle();  // all that was told has been heard

 private:
  static constexpr std::int64_t kRequestWords = 3, kNoticeWords = 11;
  struct OfWorker {
    std::array<double, kRequestWords> request{};
    Communicator::Started asked;
    std::vector<double> notice;
    Communicator::Started told;
  };
  Tensor tensor(double* words, std::int64_t count) const;
  Asked take(int worker);
  int lead(int worker) const { return worker * static_cast<int>(layout_.line()); }
  std::vector<double> words_of(const TicketNotice& notice) const;
  TicketNotice notice_of(const std::vector<double>& words) const;

  const LayoutSpec layout_;
  const bool first_server_, serves_;
  std::unique_ptr<Communicator> tickets_;            // all ranks
  std::unique_ptr<Communicator> replica_, servers_;  // of this rank; none where it would be alone
  std::vector<OfWorker> workers_;                    // the first server's
};

}  // namespace lockstep
