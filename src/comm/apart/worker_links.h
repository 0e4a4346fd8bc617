// The connections between parameter servers and workers that may die and join, of one rank: a server's, or a worker's.
//
//   servers   each of their ranks has an acceptor (acceptor.h), which stays open
//   workers   a worker's rank connects to the servers' ranks that have its layers; when all of the worker's ranks have,
//             its first one asks the first server for tickets, which is how it joins
//
// Who is there is decided by the first server alone, which tells the others to take a worker in and to let it go
// (train/async_steps.h). A worker's connections are of one life: those of an earlier process of its ranks, or of one
// that never came in whole, are dropped.
//
// A worker is `line` consecutive ranks; the ranks of servers come after all workers, in rows of as many. One thread.
#pragma once
#include <map>
#include <optional>

#include "comm/apart/acceptor.h"

namespace lockstep::apart {

struct ApartMesh {
  int workers = 1, line = 1, servers = 1;  // servers: their ranks
  int first_server() const { return workers * line; }
  int size() const { return workers * line + servers; }
  int party_of(int rank) const { return rank < first_server() ? rank / line : workers; }
};

// Of a server's rank.
class WorkerLinks final : public FarRanks {
 public:
  WorkerLinks(const ApartMesh& mesh, int rank, std::unique_ptr<Acceptor> acceptor, double deadline);

  // The first server's: workers that have come since the last look, and wait to be taken in.
  struct Joiner {
    int worker = 0;
    std::uint64_t life = 0;
  };
  std::vector<Joiner> joiners();

  // Whether the worker of that life is here whole, now or within that time; then it is there from now on.
  bool take_in(const Joiner& joiner, double seconds);
  void let_go(int worker);
  bool is_there(int worker) const { return there_.contains(worker); }
  // Whether a connection of a worker that is there is broken; sees to it first.
  bool is_lost(int worker);
  std::string why_lost(int worker) const;

  std::shared_ptr<Link> to(int rank, Channel channel) override;
  bool endures() const override { return true; }
  // Less than what the servers wait for each other: one of them may have finished with a worker whose host is gone.
  double patience(Channel) const override { return deadline_ / 2; }

 private:
  struct Links {
    std::shared_ptr<Link> tensors, tickets;
  };
  bool leads() const { return rank_ == mesh_.first_server(); }
  void accept_workers();
  void forget_broken();

  const ApartMesh mesh_;
  const int rank_;
  const std::unique_ptr<Acceptor> acceptor_;
  const double deadline_;
  std::map<int, Links> there_;                             // by worker
  std::map<int, std::map<std::uint64_t, Links>> waiting_;  // by worker and life
  std::vector<Joiner> joiners_;
};

// Of a worker's rank.
class ServerLinks final : public FarRanks {
 public:
  struct Options {
    ApartMesh mesh;
    int rank = 0;
    tcp::WorldKeys keys;
    std::vector<ServerAddress> addresses;  // of all ranks of servers
    std::string settings;
    std::uint64_t life = 0;  // the same on all ranks of the worker
  };
  // Connects for tensors. CommError where a server is not reached.
  explicit ServerLinks(const Options& options);
  // When all ranks of the worker are connected, the first of them asks the first server for tickets; then each waits
  // until the servers have taken the worker in. CommError, and UserError, as acceptor.h says.
  void join();

  std::shared_ptr<Link> to(int rank, Channel channel) override;
  bool endures() const override { return false; }
  // A server is silent while it saves, and while a bound on staleness holds a worker back. One that is gone closes.
  double patience(Channel) const override { return 0; }

 private:
  control::Socket introduce(const ServerAddress& server, Channel channel) const;
  std::shared_ptr<Link> let_in(control::Socket socket, const ServerAddress& server, Channel channel) const;

  const Options options_;
  std::map<int, control::Socket> introduced_;     // by rank; servers accept them when the first one says so
  std::map<int, std::shared_ptr<Link>> tensors_;  // by rank
  std::shared_ptr<Link> tickets_;
};

}  // namespace lockstep::apart
