#include "launch/agent.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <deque>
#include <optional>

#include "base/error.h"
#include "launch/agent_folder.h"
#include "launch/agent_link.h"
#include "launch/clock.h"
#include "launch/launch_log.h"
#include "launch/ordered_ranks.h"
#include "launch/rank_watch.h"
#include "launch/remote_agents.h"

namespace lockstep {

namespace {

using launch::Clock;
using launch::seconds_since;

constexpr int kRoundMs = 50;
constexpr double kBeat = 0.5;       // seconds between two heartbeats
constexpr double kLongRound = 0.5;  // this process was held
constexpr double kTry = 0.5;        // for one attempt to reach another agent
constexpr double kUnreachable = 2;  // that one is tried for, before it counts as lost
constexpr double kWelcome = 10;     // in which a leader that was reached answers
constexpr int kMasterPort = 29500;  // rank 0 takes another where it is not free

class Agent {
 public:
  explicit Agent(const AgentOptions& options)
      : options_(options),
        folder_(options.folder, options.agent),
        log_(options.folder, !options.copies.empty(), options.tell),
        watch_(options.folder, options.stalls),
        facts_(options.facts),
        ranks_([this](const EpochOrder& order, const EpochOrder::Place& place) { return command_of(order, place); },
               options.tell) {
    facts_.process = ::getpid();
    if (!alone()) {
      link_.emplace(folder_, options.hosts[static_cast<std::size_t>(me())], options.tell);
      facts_.address = link_->address();
    }
    if (!alone() && !options.copies.empty())
      ranks_.share_copies({.folder = options.copies,
                           .agent = me(),
                           .agents = static_cast<int>(options.hosts.size()),
                           .address = facts_.address,
                           .token = folder_.token(),
                           .endpoints = folder_,
                           .tell = options.tell});
    if (options.remote) remotes_.emplace(options.hosts, me(), options.remote, options.tell);
  }

  int run() {
    // Whoever was started again while the others went on must not lead beside them.
    alone() || (me() == 0 && folder_.last_epoch() == 0) ? lead() : look_for_leader();
    while (!code_) round();
    if (remotes_) remotes_->finish();
    if (leader_ || alone()) folder_.remove();
    if (!reason_.empty()) throw EnvironmentError(reason_);
    return *code_;
  }

 private:
  bool alone() const { return options_.hosts.size() <= 1; }
  int me() const { return options_.agent; }
  bool leads() const { return leader_.has_value(); }

  // ------------------------------------------------------------------------------------------------ every round

  void round() {
    std::vector<pollfd> polled;
    ranks_.add_descriptors(polled);
    if (link_) link_->watch(polled);
    ::poll(polled.data(), polled.size(), kRoundMs);
    const double gap = seconds_since(last_round_);
    last_round_ = Clock::now();
    if (link_) {
      link_->serve(polled);
      if (gap > kLongRound) link_->excuse(gap);
      if (gap > Leader::kLease) held_ = {gap, last_round_};
      for (const AgentLink::Received& one : link_->take()) handle(one.from, one.message);
      for (const AgentLink::Lost& lost : link_->take_lost())
        if (!code_) handle_lost(lost);
    }
    if (remotes_) remotes_->look();
    report_ends();
    if (leads())
      lead_round();
    else if (following_)
      follow_round();
    else
      election_round();
    if (link_) link_->flush();
  }

  void handle(int from, const AgentMessage& message) {
    switch (message.kind) {
      case AgentMessageKind::join:
        return admit(from, message);
      case AgentMessageKind::beat:
        if (leads())
          link_->send(from, {.kind = AgentMessageKind::beat,
                             .beat = message.beat,
                             .plan = leader_->epoch(),
                             .agents = agents_there()});
        else if (from == following_)
          take_beat(message);
        return;
      case AgentMessageKind::ended:
        if (leads())
          for (const RankEnd& end : message.ends) leader_->ended(from, message.epoch, end, Clock::now());
        return;
      case AgentMessageKind::stop:
        if (leads()) leader_->stop();
        return;
      case AgentMessageKind::welcome:
        if (from != joining_) return;
        following_ = from;
        joining_.reset();
        acknowledged_ = Clock::now();
        sent_.clear();
        return;
      case AgentMessageKind::refused:
        if (from != joining_ && from != following_) return;
        if (message.led) last_reached_ = Clock::now();
        link_->drop(from);
        joining_.reset();
        if (!message.text.empty()) end(static_cast<int>(ExitCode::usage), message.text);
        return;
      default:
        if (from == following_) obey(message);
    }
  }

  void obey(const AgentMessage& message) {
    switch (message.kind) {
      case AgentMessageKind::start:
        return start(message.order);
      case AgentMessageKind::ask_to_end:
        return ranks_.ask_to_end();
      case AgentMessageKind::kill:
        return ranks_.kill(message.ranks);
      case AgentMessageKind::over:
        ranks_.kill();
        return end(message.code, "");  // its leader has said why
      default:
        return;
    }
  }

  void start(const EpochOrder& order) {
    const std::string problem = following_ ? why_not(order, facts_.slots) : "";
    if (!problem.empty()) return lose_leader(fmt::format("it orders what cannot be ({})", problem));
    ranks_.start(order);
  }

  ProcessCommand command_of(const EpochOrder& order, const EpochOrder::Place& place) const {
    ProcessCommand command{.words = options_.command(order)};
    if (options_.kind == RankKind::processes)
      command.variables = {{"RANK", std::to_string(place.rank)},
                           {"WORLD_SIZE", std::to_string(order.layout.ranks)},
                           {"LOCAL_RANK", std::to_string(place.slot)},
                           {"LOCAL_WORLD_SIZE", std::to_string(options_.facts.slots)},
                           {"MASTER_ADDR", order.master},
                           {"MASTER_PORT", std::to_string(kMasterPort)}};
    return command;
  }

  void report_ends() {
    for (const OrderedRanks::Ended& ended : ranks_.look()) report(ended.epoch, ended.ends);
  }

  void report(std::uint32_t epoch, const std::vector<RankEnd>& ends) {
    if (leads())
      for (const RankEnd& one : ends) leader_->ended(me(), epoch, one, Clock::now());
    else if (following_)
      link_->send(*following_, {.kind = AgentMessageKind::ended, .epoch = epoch, .ends = ends});
  }

  void end(int code, const std::string& reason) {
    code_ = code;
    reason_ = reason;
  }

  // Another agent led it, saw its end and said how it ended.
  void end_with_the_run() {
    options_.tell("the run has ended meanwhile");
    end(0, "");
  }

  // ------------------------------------------------------------------------------------------------ leading

  void lead() {
    Leader::Options how = options_.lead;
    how.agents = std::max<int>(1, static_cast<int>(options_.hosts.size()));
    how.names = options_.hosts;
    how.last_epoch = folder_.last_epoch();
    leader_.emplace(how, hands(), Clock::now());
    if (plan_) leader_->inherit(*plan_, set_);
    leader_->joined(me(), facts_, Clock::now());
    for (const auto& [agent, message] : std::exchange(waiting_, {})) admit(agent, message);
  }

  Leader::Hands hands() {
    const auto to = [this](int agent, const AgentMessage& message) { link_->send(agent, message); };
    return {.start =
                [this, to](int agent, const EpochOrder& order) {
                  agent == me() ? start(order) : to(agent, {.kind = AgentMessageKind::start, .order = order});
                },
            .ask_to_end =
                [this, to](int agent) {
                  agent == me() ? ranks_.ask_to_end() : to(agent, {.kind = AgentMessageKind::ask_to_end});
                },
            .kill = [this, to](int agent) { agent == me() ? kill() : to(agent, {.kind = AgentMessageKind::kill}); },
            .kill_ranks =
                [this, to](int agent, const std::set<int>& ranks) {
                  agent == me() ? ranks_.kill(ranks) : to(agent, {.kind = AgentMessageKind::kill, .ranks = ranks});
                },
            .ranks_went = [this](const std::set<int>& ranks) { watch_.ranks_went(ranks); },
            .ranks_came = [this](const std::set<int>& ranks) { watch_.ranks_came(ranks); },
            .take_epoch =
                [this](std::uint32_t epoch) {
                  if (!folder_.take_epoch(epoch)) return false;
                  if (!alone()) folder_.write_leader(me());
                  watch_.epoch_began(leader_->coming().layout.ranks);
                  log_.epoch_began();
                  return true;
                },
            .epoch_is_taken = [this](std::uint32_t epoch) { return folder_.last_epoch() >= epoch; },
            .folder_is_free = [this] { return folder_.run_is_free(); },
            .last_step = [this] { return log_.last_step(); },
            .blamed_rank = [this] { return log_.blamed_rank(); },
            .is_unfinished = [this](std::optional<int> rank) { return watch_.is_unfinished(rank); },
            .tell = options_.tell,
            .decided = [this](const Leader::Hands::Decided& decided) { log_.decided(decided); }};
  }

  // mpirun's ranks are in process groups of their own, and outlive an mpirun that was killed.
  void kill() {
    ranks_.kill();
    if (options_.kind == RankKind::mpirun)
      for (const pid_t pid : watch_.processes_here()) kill_if_ours(pid);
  }

  void lead_round() {
    if (options_.stop) leader_->stop();
    if (link_)
      for (const int agent : agents_there())
        if (agent != me() && link_->silence_of(agent) > Leader::kLost) {
          link_->drop(agent);
          leader_->lost(agent, fmt::format("nothing was heard of it for {:.0f} s", Leader::kLost), Clock::now());
        }
    if (leader_->phase() == Leader::Phase::running)
      if (const auto hung = watch_.look()) leader_->stalled(*hung, Clock::now());
    const Leader::Phase before = leader_->phase();
    if (!alone() && before != Leader::Phase::running && !folder_.is_there()) return end_with_the_run();
    leader_->tick(Clock::now());
    if (options_.kind == RankKind::mpirun && before == Leader::Phase::running && !ranks_.running()) kill();
    log_.look();
    if (!leader_->lacks_quorum())
      log_.write_state(
          *leader_, me(), [this](int agent) { return agent == me() ? 0 : link_->silence_of(agent); },
          leader_->over() && !leader_->deposed());
    if (leader_->over()) {
      ranks_.kill();
      if (leader_->deposed() && !alone()) return look_for_leader();
      for (const int agent : agents_there())
        if (agent != me()) {
          link_->send(agent, {.kind = AgentMessageKind::over, .text = leader_->reason(), .code = leader_->code()});
          link_->drop(agent);
        }
      end(leader_->code(), leader_->reason());
    } else if ((leader_->lacks_quorum() || leader_->phase() == Leader::Phase::waiting) && !alone()) {
      step_down_for_another();
    }
  }

  // A split that has healed: on the small side of it another leads by now. Where both sides are half of the agents and
  // neither has begun an epoch, both lead and wait, and the one that led before does so again.
  void step_down_for_another() {
    const auto other = folder_.leader();
    if (!other || *other == me() || seconds_since(tried_) < kUnreachable) return;
    tried_ = Clock::now();
    if (!link_->connect(*other, join_message(), kTry).empty()) return;
    link_->drop(*other);
    look_for_leader();
  }

  void admit(int from, const AgentMessage& message) {
    if (!leads()) {
      // Who was started anew cannot come to lead, but for the first; who was here leads before those after it.
      if (following_ || joining_ || (!plan_ && me() != 0))
        link_->send(from, {.kind = AgentMessageKind::refused, .led = following_ || (plan_ && me() < from)});
      else
        waiting_[from] = message;  // until it is known who leads
      return;
    }
    std::string problem;
    if (message.version != options_.version)
      problem = fmt::format("{} runs lockstep {}, and the leading agent {}; install the same on all hosts",
                            message.facts.name, message.version, options_.version);
    else if (from < 0 || from >= static_cast<int>(options_.hosts.size()) || from == me())
      problem = fmt::format("there is no host {} in a list of {}; give all agents the same --hosts", from,
                            options_.hosts.size());
    if (!problem.empty()) {
      link_->send(from, {.kind = AgentMessageKind::refused, .text = problem});
      link_->drop(from);
      return;
    }
    // An agent that was here before has been started again: its ranks are gone.
    leader_->lost(from, "its agent was started again", Clock::now());
    leader_->joined(from, message.facts, Clock::now());
    link_->send(from, {.kind = AgentMessageKind::welcome, .agent = me()});
  }

  std::set<int> agents_there() const {
    std::set<int> all;
    for (const auto& [agent, facts] : leader_->agents()) all.insert(agent);
    return all;
  }

  void handle_lost(const AgentLink::Lost& lost) {
    if (leads()) {
      std::string how = lost.how;
      if (seconds_since(held_.until) < kUnreachable)  // the other waited in vain
        how += fmt::format(", since the leading agent, on {}, was held for {:.0f} s", facts_.name, held_.seconds);
      return leader_->lost(lost.agent, how, Clock::now());
    }
    waiting_.erase(lost.agent);
    if (lost.agent == following_) lose_leader(lost.how);
    if (lost.agent == joining_) joining_.reset();
  }

  // ------------------------------------------------------------------------------------------------ following

  void follow_round() {
    if (options_.stop && !std::exchange(told_stop_, true)) link_->send(*following_, {.kind = AgentMessageKind::stop});
    if (seconds_since(beaten_) >= kBeat) {
      beaten_ = Clock::now();
      sent_.push_back({++beats_, beaten_});
      link_->send(*following_, {.kind = AgentMessageKind::beat, .beat = beats_});
    }
    if (seconds_since(acknowledged_) > Leader::kLease)
      lose_leader(fmt::format("it has not answered for {:.0f} s", Leader::kLease));
  }

  // The lease counts from when the beat was sent that is answered.
  void take_beat(const AgentMessage& message) {
    while (!sent_.empty() && sent_.front().number <= message.beat) {
      acknowledged_ = sent_.front().at;
      sent_.pop_front();
    }
    if (message.agents.empty()) return;
    plan_ = message.plan;
    set_ = message.agents;
  }

  void lose_leader(const std::string& how) {
    ranks_.kill();
    options_.tell(fmt::format("the leading agent is lost: {}; the ranks of this host are ended", how));
    link_->drop(*following_);
    look_for_leader();
  }

  // ------------------------------------------------------------------------------------------------ electing

  void look_for_leader() {
    leader_.reset();
    following_.reset();
    joining_.reset();
    searching_ = Clock::now();
    last_reached_ = Clock::now();
    tried_ = {};
  }

  // The leader that the folder names first, then the others in order.
  std::vector<int> to_ask() const {
    std::vector<int> agents;
    if (const auto named = folder_.leader();
        named && *named != me() && *named < static_cast<int>(options_.hosts.size()))
      agents.push_back(*named);
    for (int agent = 0; agent < static_cast<int>(options_.hosts.size()); ++agent)
      if (agent != me() && std::ranges::find(agents, agent) == agents.end() && (!plan_ || agent < me()))
        agents.push_back(agent);
    return agents;
  }

  void election_round() {
    if (options_.stop) return end(options_.lead.stopped_code, "");
    if (!folder_.is_there()) return end_with_the_run();
    const bool was_here = plan_.has_value();
    if (joining_) {
      // Of agents that were all started anew, the first waits for none of the others.
      if (seconds_since(joined_at_) > (me() == 0 && !was_here ? kTry : kWelcome)) {
        link_->drop(*joining_);
        joining_.reset();
      }
      return;
    }
    if (me() == 0 && !was_here && seconds_since(searching_) > 2 * kUnreachable) return lead();
    if (seconds_since(tried_) < kTry) return;
    tried_ = Clock::now();
    // Nobody is there who leads, or would before this one.
    if (was_here && seconds_since(last_reached_) > kUnreachable) return lead();
    std::vector<int> agents = to_ask();
    if (!agents.empty()) std::ranges::rotate(agents, agents.begin() + turn_++ % std::ssize(agents));
    for (const int agent : agents) {
      if (!link_->connect(agent, join_message(), kTry).empty()) continue;
      joining_ = agent;
      joined_at_ = Clock::now();  // it is there; whether it leads, or knows who does, it has yet to say
      return;
    }
    if (seconds_since(searching_) > options_.lead.start_seconds)
      end(static_cast<int>(ExitCode::environment),
          fmt::format("no leading agent was found within {:.0f} s; start `lockstep launch` on {} with the same --out",
                      options_.lead.start_seconds, options_.hosts.front()));
  }

  AgentMessage join_message() const {
    return {.kind = AgentMessageKind::join, .agent = me(), .facts = facts_, .version = options_.version};
  }

  struct SentBeat {
    std::uint64_t number;
    Clock::time_point at;
  };

  const AgentOptions& options_;
  AgentFolder folder_;
  LaunchLog log_;
  RankWatch watch_;
  AgentFacts facts_;
  OrderedRanks ranks_;
  std::optional<AgentLink> link_;
  std::optional<RemoteAgents> remotes_;
  Clock::time_point last_round_ = Clock::now();
  struct {
    double seconds = 0;
    Clock::time_point until = {};
  } held_;  // this process, for longer than others wait for it
  std::optional<int> code_;
  std::string reason_;

  std::optional<Leader> leader_;         // this one leads
  std::map<int, AgentMessage> waiting_;  // who has joined before it was known who leads

  std::optional<int> following_, joining_;  // whom
  Clock::time_point joined_at_{}, beaten_{}, acknowledged_{}, searching_{}, last_reached_{}, tried_{};
  std::uint64_t beats_ = 0;
  std::ptrdiff_t turn_ = 0;    // whom to ask first
  std::deque<SentBeat> sent_;  // and not answered yet
  bool told_stop_ = false;
  std::optional<Epoch> plan_;  // what the leader has told last, to be inherited
  std::set<int> set_;
};

}  // namespace

int keep_running(const AgentOptions& options) { return Agent(options).run(); }

}  // namespace lockstep
