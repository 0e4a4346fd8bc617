#include "launch/rank_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace lockstep {

namespace {

constexpr const char* kHeartbeatVariable = "LOCKSTEP_AGENT_FD";

struct Pipe {
  std::array<int, 2> ends{-1, -1};
  Pipe() {
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw EnvironmentError(fmt::format("pipe: {}", std::strerror(errno)));
  }
  ~Pipe() {
    for (const int end : ends)
      if (end >= 0) ::close(end);
  }
  int give(int which) { return std::exchange(ends[static_cast<std::size_t>(which)], -1); }
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

// The agent's own variables, with those of the command in their place.
std::vector<std::string> environment_of(const ProcessCommand& command, int heartbeat) {
  auto wanted = command.variables;
  wanted.emplace_back(kHeartbeatVariable, std::to_string(heartbeat));
  std::vector<std::string> all;
  for (char** at = environ; *at; ++at) {
    const std::string_view name = std::string_view(*at).substr(0, std::string_view(*at).find('='));
    if (std::none_of(wanted.begin(), wanted.end(), [&](const auto& own) { return own.first == name; }))
      all.emplace_back(*at);
  }
  for (const auto& [name, value] : wanted) all.push_back(fmt::format("{}={}", name, value));
  return all;
}

// After fork and before exec only calls that are safe in a signal handler are made.
[[noreturn]] void become(char* const* words, char* const* variables, pid_t parent, int report, int heartbeat) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  ::fcntl(heartbeat, F_SETFD, 0);                                    // it alone is kept
  if (::getppid() == parent) ::execvpe(words[0], words, variables);  // else the agent died before it was noticed
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(report, &error, sizeof error);
  ::_exit(127);
}

bool runs_this_program(pid_t pid) {
  std::error_code error;
  const auto theirs = std::filesystem::read_symlink(fmt::format("/proc/{}/exe", pid), error);
  return !error && theirs == std::filesystem::read_symlink("/proc/self/exe", error);
}

}  // namespace

RankProcess::RankProcess(const ProcessCommand& command) {
  Pipe report;  // closed by exec: nothing comes where that succeeds
  Pipe heartbeat;
  for (const int end : heartbeat.ends) ::fcntl(end, F_SETFL, O_NONBLOCK);
  const std::vector<std::string> variables = environment_of(command, heartbeat.ends[1]);
  const std::vector<char*> words = pointers(command.words), environment = pointers(variables);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) become(words.data(), environment.data(), parent, report.ends[1], heartbeat.ends[1]);
  int error = pid_ < 0 ? errno : 0;
  ::close(report.give(1));
  if (pid_ > 0) {
    while (::read(report.ends[0], &error, sizeof error) < 0 && errno == EINTR) continue;
    if (error != 0) ::waitpid(pid_, nullptr, 0);
  }
  if (error != 0)
    throw EnvironmentError(fmt::format("{} cannot be started: {}", command.words[0], std::strerror(error)));
  heartbeat_ = heartbeat.give(0);
  descriptor_ = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
}

RankProcess::~RankProcess() {
  kill();
  if (descriptor_ >= 0) ::close(descriptor_);
  if (heartbeat_ >= 0) ::close(heartbeat_);
}

const std::optional<int>& RankProcess::look() {
  int status = 0;
  if (!code_ && ::waitpid(pid_, &status, WNOHANG) == pid_)
    code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return code_;
}

std::optional<RankProcess::Clock::time_point> RankProcess::last_heard() {
  std::array<char, 64> bytes;
  while (::read(heartbeat_, bytes.data(), bytes.size()) > 0) heard_ = Clock::now();
  return heard_;
}

void RankProcess::ask_to_end() {
  if (!look()) ::kill(pid_, SIGTERM);
}

void RankProcess::kill() {
  if (pid_ < 0 || look()) return;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);  // in case it has not its group yet
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) continue;
  code_ = 128 + SIGKILL;
}

void kill_if_ours(pid_t pid) {
  if (runs_this_program(pid)) ::kill(pid, SIGKILL);
}

}  // namespace lockstep
