#include "cli/launch_hosts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>

#include "cli/usage_error.h"
#include "comm/control/socket.h"
#include "launch/agent_message.h"
#include "spec/text/text_input.h"

namespace lockstep {

namespace {

constexpr std::size_t kMostHosts = 4096, kMostDigits = 18;

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

[[noreturn]] void refuse_list(const std::string& list) {
  refuse(fmt::format("{} is no list of nodes", quote_text(list)), "write it as a1,a2 or a[1-3,7]");
}

void add_name(std::string name, const std::string& list, std::vector<std::string>& names) {
  if (!is_host_text(name)) refuse_list(list);
  names.push_back(std::move(name));
  if (names.size() > kMostHosts)
    refuse(fmt::format("{} is of more than {} nodes", quote_text(list), kMostHosts), "use fewer");
}

// "a[1-3]" to a1, a2, a3; without brackets the name alone.
void expand_part(const std::string& part, const std::string& list, std::vector<std::string>& names) {
  const std::size_t open = part.find('[');
  if (open == std::string::npos) return add_name(part, list, names);
  const std::size_t close = part.find(']', open);
  if (close == std::string::npos || close + 1 != part.size()) refuse_list(list);
  const std::string prefix = part.substr(0, open);
  for (const std::string& range : split(part.substr(open + 1, close - open - 1), ',')) {
    const std::size_t dash = range.find('-');
    const std::string first = range.substr(0, dash), last = dash == std::string::npos ? first : range.substr(dash + 1);
    std::int64_t from = 0, to = 0;
    const auto read = [&](const std::string& text, std::int64_t& value) {
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (text.size() > kMostDigits || error != std::errc() || end != text.data() + text.size() || value < 0)
        refuse_list(list);
    };
    read(first, from);
    read(last, to);
    if (to < from || to - from > static_cast<std::int64_t>(kMostHosts)) refuse_list(list);
    for (std::int64_t i = from; i <= to; ++i) add_name(fmt::format("{}{:0{}}", prefix, i, first.size()), list, names);
  }
}

// Where `host` is in the list; by this machine's own name where none is given.
int place_in(const std::vector<std::string>& names, const std::string& host) {
  const auto find = [&](const std::string& name) -> std::optional<int> {
    const auto at = std::ranges::find(names, name);
    if (at == names.end()) return std::nullopt;
    return static_cast<int>(at - names.begin());
  };
  if (!host.empty()) {
    if (const auto place = find(host)) return *place;
    refuse(fmt::format("--host {} is none of --hosts", host), "name one of the list");
  }
  const std::string here = control::host_name();
  if (const auto place = find(here)) return *place;
  if (const auto place = find(here.substr(0, here.find('.')))) return *place;
  for (std::size_t i = 0; i < names.size(); ++i)  // an address that this machine can listen on is its own
    try {
      control::listen_on(names[i], 0);
      return static_cast<int>(i);
    } catch (const std::exception&) {
    }
  refuse(fmt::format("none of --hosts is this machine, '{}'", here), "name its place in the list with --host");
}

}  // namespace

std::vector<std::string> expand_node_list(const std::string& list) {
  std::vector<std::string> names;
  std::string part;
  int depth = 0;
  for (const char c : list + ",") {
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (depth < 0 || depth > 1) refuse_list(list);
    if (c != ',' || depth > 0) {
      part += c;
      continue;
    }
    if (part.empty()) refuse_list(list);
    expand_part(std::exchange(part, {}), list, names);
  }
  if (!part.empty()) refuse_list(list);  // a bracket that is not closed
  return names;
}

LaunchHosts launch_hosts(const std::string& listed, const std::string& host, const LaunchVariables& variable) {
  LaunchHosts hosts;
  if (!listed.empty()) {
    hosts.names = expand_node_list(listed);
    if (std::set<std::string>(hosts.names.begin(), hosts.names.end()).size() != hosts.names.size())
      refuse("--hosts names a host twice", "name each once, and give --slots for several ranks on one");
    hosts.mine = place_in(hosts.names, host);
    return hosts;
  }
  if (!host.empty()) refuse("--host is given without --hosts", "list all hosts in --hosts");
  const char* const nodes = variable("SLURM_STEP_NODELIST");
  const char* const node = variable("SLURM_NODEID");
  if (!is_scheduler_task(variable) || !nodes || !node) return hosts;
  std::vector<std::string> names = expand_node_list(nodes);
  int place = -1;
  const std::string text = node;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), place);
  if (error != std::errc() || end != text.data() + text.size() || place < 0 || place >= static_cast<int>(names.size()))
    refuse(fmt::format("SLURM_NODEID is '{}' in a step of {} nodes", text, names.size()), "start launch with srun");
  if (const char* const tasks = variable("SLURM_STEP_NUM_TASKS");
      tasks && std::string(tasks) != std::to_string(names.size()))
    refuse(fmt::format("srun has started {} tasks on {} node{}", tasks, names.size(), names.size() == 1 ? "" : "s"),
           "start one launch per node: srun --ntasks-per-node=1; it starts the ranks itself");
  if (names.size() == 1) return hosts;
  hosts.names = std::move(names);
  hosts.mine = place;
  hosts.by_scheduler = true;
  return hosts;
}

bool is_scheduler_task(const LaunchVariables& variable) {
  return variable("SLURM_JOB_ID") && variable("SLURM_PROCID") && variable("SLURM_STEP_ID") &&
         !variable("OMPI_COMM_WORLD_SIZE");
}

void forget_scheduler_ranks() {
  std::vector<std::string> names;
  for (char** at = environ; *at; ++at)
    if (const std::string_view text = *at;
        text.starts_with("PMI_") || text.starts_with("PMI2_") || text.starts_with("PMIX_"))
      names.emplace_back(text.substr(0, text.find('=')));
  for (const std::string& name : names) ::unsetenv(name.c_str());
}

int times_queued_again(const LaunchVariables& variable) {
  const char* const count = variable("SLURM_RESTART_COUNT");
  if (!variable("SLURM_JOB_ID") || !count) return 0;
  int times = 0;
  const std::string text = count;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), times);
  if (error != std::errc() || end != text.data() + text.size() || times < 0)
    refuse(fmt::format("SLURM_RESTART_COUNT is {}", quote_text(text)),
           "unset it, or give --resume or --overwrite alone");
  return times;
}

std::vector<std::string> remote_command(const std::string& remote, const std::string& host,
                                        const std::vector<std::string>& command, const std::string& folder) {
  std::vector<std::string> words;
  bool named = false;
  for (std::string word : split(remote, ' ')) {
    for (std::size_t at; (at = word.find("{host}")) != std::string::npos; named = true) word.replace(at, 6, host);
    words.push_back(std::move(word));
  }
  if (words.empty()) refuse("--remote is empty", "give a command such as 'ssh {host}'");
  if (!named) words.push_back(host);
  const std::string program = std::filesystem::path(words.front()).filename().string();
  if (program != "ssh" && program != "rsh") {
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }
  // A shell reads it there. Inside single quotes nothing but a single quote has a meaning.
  const auto quoted = [](const std::string& word) {
    std::string result = "'";
    for (const char c : word) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return result + "'";
  };
  std::string line = fmt::format("cd {} && exec", quoted(folder));
  for (const std::string& word : command) line += " " + quoted(word);
  words.push_back(line);
  return words;
}

}  // namespace lockstep
