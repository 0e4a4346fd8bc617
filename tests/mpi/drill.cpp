// What each process does in a drill: a few operations in good order, then rank 2 does what the drill is about.
#include "mpi/drill.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>

#include "comm/mpi/world.h"
#include "comm/processes/run_rank.h"
#include "process_ranks/processes.h"

namespace lockstep::tests {

namespace {

using Clock = std::chrono::steady_clock;

void nap(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

using Row = std::pmr::vector<float>;

Tensor tensor(Row& x, std::int64_t n = -1) {
  return Tensor(x.data(), DType::f32, Device::cpu, {n < 0 ? static_cast<std::int64_t>(x.size()) : n});
}

// What rank 2 does before, or instead of, its next call; whether it makes that call like the others.
bool misbehave(const std::string& drill, std::unique_ptr<Communicator>& comm, Row& x) {
  if (drill == "kill") raise(SIGKILL);
  if (drill == "stop") raise(SIGSTOP);
  if (drill == "exit") _exit(0);
  if (drill == "throw") throw UserError(ExitCode::bad_input_file, "no such tokens", "look again");
  if (drill == "late") nap(30);
  if (drill == "kill_under_way") {
    const auto pending = comm->all_reduce(tensor(x));
    raise(SIGKILL);
  }
  if (drill == "kill_at_work" || drill == "stop_at_work") {  // in the middle of a piece, most likely
    std::thread([&] {
      nap(0.1);
      kill(getpid(), drill == "kill_at_work" ? SIGKILL : SIGSTOP);
    }).detach();
    for (;;) comm->all_reduce(tensor(x))->wait();
  }
  if (drill == "leave") {
    comm.reset();
    nap(1);
    return false;
  }
  return true;
}

bool at_work(const std::string& drill) { return drill.ends_with("_at_work"); }

void act(const std::string& drill, std::unique_ptr<Communicator> comm, Clock::time_point& waits_since) {
  Row x(drill == "kill_under_way" || at_work(drill) ? 20000000 : 1000);
  for (int i = 0; i < 3; ++i) comm->all_reduce(tensor(x, 1000))->wait();
  const auto pair = comm->split([](int rank) { return Place{rank / 2, rank}; }, "pair");
  const auto behind = comm->all_reduce(tensor(x, 10));
  behind->wait();
  waits_since = Clock::now();
  if (drill == "send_recv") {  // rank 3 receives less than rank 2 sends; ranks 0 and 1 hear of nothing
    if (pair->rank() == 0)
      pair->send(tensor(x), 1)->wait();
    else
      pair->recv(tensor(x, comm->rank() == 3 ? 999 : 1000), 0)->wait();
    return;
  }
  if (comm->rank() == 2 && !misbehave(drill, comm, x)) return;
  do {
    waits_since = Clock::now();
    comm->all_reduce(tensor(x))->wait();
  } while (at_work(drill));
}

// The start of MPI, to which rank 2 may not come. What it is, where it fails.
int join(const std::string& drill, std::optional<MpiWorld>& world, const ProcessOptions& options,
         const std::function<void(const std::string&)>& say) {
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  const bool odd = rank && std::string(rank) == "2";
  if (odd && drill == "will_not_join") MpiWorld::will_not_join("lockstep plan");
  if (odd && (drill == "never_joins" || drill == "will_not_join")) {
    nap(30);
    return 7;
  }
  try {
    world.emplace(options);
    return 0;
  } catch (const UserError& error) {
    say(error.what());
    nap(0.7);
    return static_cast<int>(error.code());
  } catch (const CommError& error) {
    say(error.what());
    nap(0.7);
    return static_cast<int>(ExitCode::environment);
  }
}

}  // namespace

int run_drill(const std::string& drill, const std::string& report, const ProcessOptions& options) {
  signal(SIGTERM, SIG_IGN);  // mpirun ends the others as soon as one has died; these have something to say first
  Clock::time_point waits_since = Clock::now();
  const auto say = [&](const std::string& words) {
    const double seconds = std::chrono::duration<double>(Clock::now() - waits_since).count();
    const std::string line = fmt::format("[{:.2f} s] {}\n", seconds, words);
    std::ofstream(report, std::ios::app) << line;  // mpirun loses what is printed while it ends a job
  };
  const auto say_again = [&](Communicator& comm, const std::string& words) {  // a later call fails with the same words
    try {
      comm.barrier()->wait();
      say("no failure at all");
    } catch (const CommError& error) {
      say(error.what() == words ? "and again" : std::string("not again, but ") + error.what());
    }
  };
  // mpirun kills all that are left as soon as a second one has ended: its wait is cut short by that.
  const auto until_all_have_spoken = [] { nap(0.7); };
  std::optional<MpiWorld> joined;
  if (const int code = join(drill, joined, options, say); code != 0) _exit(code);  // MPI's start cannot be left
  MpiWorld& world = *joined;
  waits_since = Clock::now();
  try {
    run_rank(world, [&](std::unique_ptr<Communicator> comm) {
      const SharedRows shared(*comm, at_work(drill) || options.least_seen == 0);
      if (drill != "mismatch") return act(drill, std::move(comm), waits_since);
      Row x(1000);
      comm->all_reduce(tensor(x))->wait();
      try {
        (comm->rank() == 2 ? comm->broadcast(tensor(x), 0) : comm->all_reduce(tensor(x)))->wait();
      } catch (const CommError& error) {
        say_again(*comm, error.what());
        throw;
      }
    });
  } catch (const UserError& error) {
    say(error.what());
    until_all_have_spoken();
    return static_cast<int>(error.code());
  } catch (const EnvironmentError& error) {
    say(error.what());
    until_all_have_spoken();
    return static_cast<int>(ExitCode::environment);
  }
  say(fmt::format("rank {}: ended well", world.rank()));
  return 0;
}

}  // namespace lockstep::tests
