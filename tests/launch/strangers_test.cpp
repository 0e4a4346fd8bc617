// Two agents at work, and who is no agent: connections by the thousand, slow ones, wrong tokens, what an eavesdropper
// has recorded, and a leader with the token that orders what cannot be.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <set>

#include "comm/control_ranks.h"
#include "comm/eavesdropper.h"
#include "launch/agent_link.h"
#include "launch/launched_hosts.h"

namespace lockstep::tests {
namespace {

using namespace std::chrono_literals;
using control::Clock;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

struct Endpoint {
  std::string address;
  int port = 0;
};

class AgentsAtWork : public LaunchedHosts {
 protected:
  std::string endpoint_file(int agent) const { return fmt::format("{}/.launch/agent-{}", out(), agent); }
  std::optional<Endpoint> endpoint(int agent) const {
    Endpoint at;
    std::ifstream in(endpoint_file(agent));
    if (!(in >> at.address >> at.port)) return std::nullopt;
    return at;
  }
  static control::Socket connect(const Endpoint& at) {
    std::string why_not;
    return control::connect_to(at.address, at.port, Clock::now() + control::seconds(2), why_not);
  }
  static void say(const control::Socket& socket, const std::string& bytes) {
    if (socket) [[maybe_unused]]
      const ssize_t sent = ::send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
};

// Everything that can be sent without the token, to both agents, while they and their ranks are at work.
TEST_F(AgentsAtWork, DoNotNoticeStrangers) {
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 8192);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  constexpr int kSteps = 250;
  const std::string unbroken = folder_ / "unbroken";
  ASSERT_EQ(run_program(training("train", unbroken, kSteps)).code, 0);

  // The second agent reaches the first through somebody who listens.
  std::unique_ptr<Program> agents[2] = {agent(0, kSteps), nullptr};
  ASSERT_TRUE(comes([&] { return endpoint(0).has_value(); }));
  const Endpoint first = *endpoint(0);
  const Eavesdropper between(first.port);
  std::ofstream(endpoint_file(0)) << fmt::format("127.0.0.1 {} 1\n", between.port());
  agents[1] = agent(1, kSteps);
  ASSERT_TRUE(comes([&] { return endpoint(1).has_value(); }));
  ASSERT_TRUE(reaches(20));

  std::ofstream(endpoint_file(0)) << fmt::format("127.0.0.1 {} 1\n", first.port);
  const std::string recorded = between.heard_from_rank();
  ASSERT_GT(recorded.size(), 3 * control::kAnswerBytes);
  std::atomic<bool> over = false;
  std::atomic<int> came = 0;
  std::jthread crowd([&] {
    std::vector<control::Socket> all(1000);
    const std::string answer(control::kAnswerBytes, 'x');
    for (int i = 0; !over; ++i) {
      const Endpoint at = *endpoint(i % 2);
      control::Socket& one = all[static_cast<std::size_t>(i % 1000)];
      one = connect(at);
      if (i % 4 == 1) say(one, answer);                                 // a wrong proof
      if (i % 4 == 2) say(one, std::string(10, static_cast<char>(i)));  // less than one
      if (i % 4 == 3) say(one, i % 8 == 3 ? recorded : to_text({.kind = AgentMessageKind::kill}) + answer);
      ++came;
    }
  });
  std::jthread slow([&] {
    std::vector<control::Socket> all;
    for (int i = 0; i < 50; ++i) all.push_back(connect(*endpoint(i % 2)));
    while (!over) {
      for (control::Socket& one : all) say(one, "x");
      std::this_thread::sleep_for(200ms);
    }
  });
  std::jthread wrong([&] {
    while (!over) {
      std::string why_not;
      const Endpoint at = *endpoint(0);
      const control::Token token("a token of another run");
      EXPECT_THAT(words_of([&] {
                    control::connect_secured(at.address, at.port, token, Clock::now() + control::seconds(1), why_not);
                  }) + why_not,
                  Not(""));
      std::this_thread::sleep_for(20ms);
    }
  });
  const std::int64_t before = now(0)->step;
  EXPECT_TRUE(comes([&] { return came > 3000 && now(0)->step >= before + 30; }));
  over = true;
  crowd.join(), slow.join(), wrong.join();

  for (const auto& one : agents) {
    const Outcome outcome = one->wait();
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(Not(HasSubstr("restart")), Not(HasSubstr("is lost"))));
    EXPECT_LE(std::ranges::count(outcome.err, '\n'), 4) << outcome.err;  // strangers are told of once
  }
  EXPECT_EQ(results_in(out()), results_in(unbroken));
  EXPECT_GE(came, 3000);
}

// What is sent to an agent by a leader that has the token, and is not one of ours.
TEST_F(AgentsAtWork, StartNothingThatALeaderOrdersBeyondTheirSlotsOrWithoutALayout) {
  const EpochOrder good{.epoch = 1, .layout = {.ranks = 2}, .places = {{1, 0}}};
  const auto with = [&](auto change) {
    EpochOrder order = good;
    change(order);
    return order;
  };
  const std::vector<std::pair<EpochOrder, std::string>> orders{
      {with([](EpochOrder& o) { o.layout.text = "--overwrite"; }), "'layout' makes no sense"},
      {with([](EpochOrder& o) { o.layout.text = "dp=2 --out /tmp/x"; }), "'layout' makes no sense"},
      {with([](EpochOrder& o) { o.master = "-oProxyCommand=reboot"; }), "'master' makes no sense"},
      {with([](EpochOrder& o) {
         o.places = {{1, 1}};
       }),
       "it orders what cannot be (slot 1 of a host of 1)"},
      {with([](EpochOrder& o) {
         o.places = {{0, 0}, {1, 0}};
       }),
       "it orders what cannot be (rank 1 or slot 0 twice)"},
      {with([](EpochOrder& o) { o.places.clear(); }), "it orders what cannot be (an epoch without ranks)"},
      {with([](EpochOrder& o) { o.layout.text = "dp=3"; }), "an order of 2 ranks in the layout dp=3"},
      {with([](EpochOrder& o) { o.layout.text = "out=x"; }), "unknown key 'out'"}};
  for (const auto& [order, answer] : orders) {
    fs::remove_all(out());
    AgentFolder folder(out(), 0);
    AgentLink leader(folder, host(0), [](const std::string&) {});
    const auto follower = agent(1, 1000);
    bool ordered = false, answered = false;
    std::string lost;
    comes([&] {
      std::vector<pollfd> polled;
      leader.watch(polled);
      ::poll(polled.data(), polled.size(), 20);
      leader.serve(polled);
      for (const AgentLink::Received& one : leader.take()) {
        if (one.message.kind == AgentMessageKind::join && !ordered) {
          leader.send(1, {.kind = AgentMessageKind::welcome, .agent = 0});
          leader.send(1, {.kind = AgentMessageKind::start, .order = order});
          ordered = true;
        }
        answered = answered || (one.message.kind == AgentMessageKind::ended && one.message.ends[0].code == 5);
      }
      for (const AgentLink::Lost& one : leader.take_lost()) lost += one.how;
      return !lost.empty() || answered;
    });
    const auto at = endpoint(1);
    ASSERT_TRUE(ordered && at) << answer;
    EXPECT_FALSE(fs::exists(out() + "/run.toml")) << answer;
    follower->signal(SIGTERM);
    const Outcome outcome = follower->wait();
    EXPECT_THAT(outcome.err, HasSubstr(answer)) << lost << outcome.code;
    EXPECT_FALSE(fs::exists(out() + "/log.txt")) << answer;  // no rank has run
  }
}

}  // namespace
}  // namespace lockstep::tests
