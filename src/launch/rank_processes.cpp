#include "launch/rank_processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/error.h"

namespace lockstep {

namespace {

// After fork and before exec only calls that are safe in a signal handler are made.
[[noreturn]] void become(char* const* words, pid_t parent, int report) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() == parent) ::execvp(words[0], words);  // otherwise the agent died before it could be noticed
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

RankProcesses::RankProcesses(const std::vector<std::string>& command) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  std::array<int, 2> report{};  // closed by exec: nothing comes where that succeeds
  if (::pipe2(report.data(), O_CLOEXEC) != 0) throw EnvironmentError(fmt::format("pipe: {}", std::strerror(errno)));
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) become(words.data(), parent, report[1]);
  int error = pid_ < 0 ? errno : 0;
  ::close(report[1]);
  if (pid_ > 0) {
    while (::read(report[0], &error, sizeof error) < 0 && errno == EINTR) continue;
    if (error != 0) ::waitpid(pid_, nullptr, 0);
  }
  ::close(report[0]);
  if (error != 0) throw EnvironmentError(fmt::format("{} cannot be started: {}", command[0], std::strerror(error)));
  descriptor_ = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
}

RankProcesses::~RankProcesses() {
  kill({});
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::optional<int> RankProcesses::wait(std::chrono::milliseconds at_most) {
  if (code_) return code_;
  pollfd ended{.fd = descriptor_, .events = POLLIN, .revents = 0};  // a negative one only waits
  ::poll(&ended, 1, static_cast<int>(at_most.count()));
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) == pid_)
    code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return code_;
}

void RankProcesses::ask_to_end() {
  if (!code_) ::kill(pid_, SIGTERM);
}

void RankProcesses::kill(const std::vector<pid_t>& ranks) {
  for (const pid_t rank : ranks)
    if (runs_this_program(rank)) ::kill(rank, SIGKILL);
  if (code_) return;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);  // in case it has not its group yet
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) continue;
  code_ = 128 + SIGKILL;
}

}  // namespace lockstep
