// The control plane between real processes: what no thread can play, since a thread cannot be killed or stopped alone.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "comm/control_ranks.h"

namespace lockstep::tests {
namespace {

using namespace lockstep::control;
using ::testing::HasSubstr;

class Processes {
 public:
  // Each child runs the body with the port it is told, and says when it is ready; its words come back through a pipe.
  using Body = std::function<std::string(int rank, int port, const std::function<void()>& ready)>;
  Processes(int count, const Body& body) {
    for (int rank = 0; rank < count; ++rank) {
      int to_child[2], to_parent[2];
      if (::pipe(to_child) || ::pipe(to_parent)) throw EnvironmentError("pipe");
      const pid_t child = ::fork();
      if (child < 0) throw EnvironmentError("fork");  // and never a signal to process -1
      if (child == 0) {
        ::close(to_child[1]);
        int port = 0;
        if (::read(to_child[0], &port, sizeof port) != sizeof port) ::_exit(1);
        const auto say = [&](const std::string& words) {
          if (::write(to_parent[1], words.data(), words.size()) < 0) ::_exit(1);
        };
        say(body(rank, port, [&] { say("!"); }));
        ::_exit(0);
      }
      ::close(to_child[0]);
      ::close(to_parent[1]);
      children_.push_back({child, to_child[1], Socket(to_parent[0])});
    }
  }
  ~Processes() {
    for (const Child& child : children_) {
      ::kill(child.process, SIGKILL);
      ::waitpid(child.process, nullptr, 0);
    }
  }

  void tell(int port) {
    for (Child& child : children_) {
      EXPECT_EQ(::write(child.input, &port, sizeof port), static_cast<ssize_t>(sizeof port));
      ::close(child.input);
    }
  }
  void wait_until_ready() const {
    for (const Child& child : children_) EXPECT_EQ(read_exactly_from(child.output.descriptor(), 1), "!");
  }
  pid_t process(int rank) const { return children_[static_cast<std::size_t>(rank)].process; }
  std::string words(int rank) const {
    return read_exactly_from(children_[static_cast<std::size_t>(rank)].output.descriptor(), 1 << 16);
  }

 private:
  // Fewer where the other end closes, or has said nothing for ten seconds.
  static std::string read_exactly_from(int descriptor, std::size_t count) {
    std::string text;
    char byte = 0;
    pollfd one = {descriptor, POLLIN, 0};
    while (text.size() < count && ::poll(&one, 1, 10000) > 0 && ::read(descriptor, &byte, 1) == 1) text += byte;
    return text;
  }

  struct Child {
    pid_t process;
    int input;
    Socket output;
  };
  std::vector<Child> children_;
};

void drill(int signal, double deadline, int victim, const std::string& what) {
  constexpr int kRanks = 4;
  Processes ranks(kRanks, [&](int rank, int port, const auto& ready) {
    return words_of([&] {
      Session session({.port = port, .token = kToken, .rank = rank, .size = kRanks, .deadline_seconds = deadline});
      session.barrier("in");
      ready();
      session.get("what never comes", 8);
    });
  });
  Coordinator coordinator(with_token());
  ranks.tell(coordinator.port());
  ranks.wait_until_ready();
  const double seconds = seconds_of([&] {
    ::kill(ranks.process(victim), signal);
    for (int rank = 0; rank < kRanks; ++rank)
      if (rank != victim) {
        EXPECT_THAT(ranks.words(rank), HasSubstr(fmt::format("rank {} (host {}, process {}) {}", victim, host_name(),
                                                             ranks.process(victim), what)));
      }
  });
  EXPECT_LT(seconds, deadline + 2);
}

TEST(ControlProcesses, OneThatIsKilledIsNamedAtOnce) { drill(SIGKILL, 5, 2, "closed its connection"); }

TEST(ControlProcesses, OneThatIsStoppedIsNamedAtTheDeadline) { drill(SIGSTOP, 1, 1, "has not been heard from for 1."); }

// The coordinator's process is rank 0's: its end is known by that name.
void coordinator_drill(int signal, double deadline, const std::string& what) {
  constexpr int kRanks = 3;
  const int port = Coordinator(with_token()).port();
  Processes ranks(kRanks, [&](int rank, int its_port, const auto& ready) {
    return words_of([&] {
      std::unique_ptr<Coordinator> coordinator;
      if (rank == 0) coordinator = std::make_unique<Coordinator>(CoordinatorOptions{.port = its_port, .token = kToken});
      Session session({.port = its_port, .token = kToken, .rank = rank, .size = kRanks, .deadline_seconds = deadline});
      session.barrier("in");
      ready();
      session.get("what never comes", 8);
    });
  });
  ranks.tell(port);
  ranks.wait_until_ready();
  ::kill(ranks.process(0), signal);
  for (const int rank : {1, 2})
    EXPECT_THAT(ranks.words(rank), HasSubstr(fmt::format("in the process of rank 0 (host {}, process {}), {}",
                                                         host_name(), ranks.process(0), what)));
}

TEST(ControlProcesses, TheCoordinatorsOwnIsNamedWhenItIsKilled) {
  coordinator_drill(SIGKILL, 5, "closed its connection");
}

TEST(ControlProcesses, TheCoordinatorsOwnIsNamedWhenItIsStopped) {
  coordinator_drill(SIGSTOP, 1, "has not been heard from for 1.");
}

TEST(ControlProcesses, OneThatIsStoppedForAMomentIsNoFailure) {
  Processes ranks(2, [&](int rank, int port, const auto& ready) {
    return words_of([&] {
      Session session({.port = port, .token = kToken, .rank = rank, .size = 2, .deadline_seconds = 1});
      session.barrier("in");
      ready();
      nap(0.6);
      session.barrier("out");
      session.leave();
    });
  });
  Coordinator coordinator(with_token());
  ranks.tell(coordinator.port());
  ranks.wait_until_ready();
  ::kill(ranks.process(1), SIGSTOP);
  nap(0.4);
  ::kill(ranks.process(1), SIGCONT);
  EXPECT_EQ(ranks.words(0) + ranks.words(1), "");
}

// All of a run on one machine that sleeps: nobody could hear anybody, so nobody was silent.
TEST(ControlProcesses, AllOfThemStoppedForLongerThanTheDeadlineIsNoFailure) {
  Processes run(1, [&](int, int, const auto& ready) {
    Coordinator coordinator(with_token());
    const auto words = words_of_each(3, [&](int rank) {
      Session session(place_of(coordinator, rank, 3, 0.5));
      session.barrier("in");
      if (rank == 0) ready();
      for (int i = 0; i < 20; ++i) nap(0.01);
      session.barrier("out");
      session.leave();
    });
    return words[0] + words[1] + words[2];
  });
  run.tell(0);
  run.wait_until_ready();
  ::kill(run.process(0), SIGSTOP);
  nap(0.7);
  ::kill(run.process(0), SIGCONT);
  EXPECT_EQ(run.words(0), "");
}

}  // namespace
}  // namespace lockstep::tests
