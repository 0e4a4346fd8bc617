// test_tcp --ranks=8: starts that many processes, and runs the tests over processes in them, with TCP between those
// that --hosts puts on different hosts. A failure of any rank makes the exit status non-zero.
//
// The first process coordinates, and is no rank.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "comm/control/coordinator.h"
#include "comm/control/session.h"
#include "comm/tcp/world.h"
#include "process_ranks/processes.h"

namespace lockstep::tests {
namespace {

TextExchange texts_over(control::Session& session) {
  return [&session, number = 0](const std::string& mine) mutable {
    const auto key = [now = number++](int rank) { return fmt::format("text {} of {}", now, rank); };
    session.put(key(session.rank()), mine);
    std::vector<std::string> texts;
    for (int rank = 0; rank < session.size(); ++rank) texts.push_back(session.get(key(rank)));
    return texts;
  };
}

int run_rank_of(int argc, char** argv, const control::SessionOptions& place) {
  control::Session session(place);
  const ProcessOptions options = options_of(argc, argv, std::to_string(place.rank));
  int result = 1;
  {
    TcpWorld world({.rank = place.rank, .size = place.size, .gather = texts_over(session), .processes = options});
    result = run_tests(argc, argv, world, options);
  }
  session.leave();
  return result;
}

}  // namespace
}  // namespace lockstep::tests

int main(int argc, char** argv) {
  using namespace lockstep;
  using namespace lockstep::tests;
  ::testing::InitGoogleTest(&argc, argv);
  const std::string asked = argument(argc, argv, "--ranks");
  const int ranks = asked.empty() ? 2 : std::stoi(asked);
  const std::string token = control::Token::make();
  std::vector<pid_t> children;
  std::vector<int> pipes;
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    if (::pipe(ends) != 0) return 5;
    const pid_t child = ::fork();  // before there are threads
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      int port = 0;
      if (::read(ends[0], &port, sizeof port) != sizeof port) ::_exit(5);
      return run_rank_of(argc, argv, {.port = port, .token = token, .rank = rank, .size = ranks});
    }
    ::close(ends[0]);
    children.push_back(child);
    pipes.push_back(ends[1]);
  }
  int result = 0;
  control::Coordinator coordinator({.token = token});
  const int port = coordinator.port();
  for (const int pipe : pipes)
    if (::write(pipe, &port, sizeof port) != sizeof port) result = 5;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) result = 1;
  }
  return result;
}
