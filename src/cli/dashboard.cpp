#include "cli/dashboard.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <thread>

#include "base/error.h"
#include "cli/signals.h"
#include "dashboard/access.h"
#include "dashboard/dashboard.h"
#include "dashboard/page_files.h"
#include "spec/text/text_input.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenVariable = "LOCKSTEP_DASHBOARD_TOKEN";

struct DashboardSettings {
  std::string folder, address = "127.0.0.1", token_file;
  std::vector<std::string> hosts;
  int port = 8421;
};

std::string first_line_of(const std::string& file) {
  std::error_code ignored;
  std::ifstream in;
  if (fs::is_regular_file(file, ignored)) in.open(file);
  std::string line;
  if (!in.is_open() || (!std::getline(in, line) && !in.eof()))
    throw UserError(ExitCode::bad_input_file, fmt::format("{} cannot be read", quote_text(file)),
                    "name a file whose first line is the token");
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
  return line;
}

// What the user gave, from a file before the environment; empty: nothing.
std::string given_token(const DashboardSettings& s) {
  if (!s.token_file.empty()) {
    const std::string token = first_line_of(s.token_file);
    check_token(token, quote_text(s.token_file));
    return token;
  }
  const char* variable = std::getenv(kTokenVariable);
  if (!variable || !*variable) return "";
  check_token(variable, kTokenVariable);
  return variable;
}

int run_dashboard(const DashboardSettings& s) {
  if (!missing_packages().empty())
    throw UserError(ExitCode::environment, "this build of lockstep has no dashboard",
                    fmt::format("install {} and build again", missing_packages()));
  std::error_code ignored;
  if (!fs::is_directory(s.folder, ignored))
    throw UserError(ExitCode::bad_input_file, fmt::format("there is no folder {}", quote_text(s.folder)),
                    "name a run folder, or a folder of them");
  const bool loopback = is_loopback(s.address);
  std::string token = given_token(s);
  const bool made = token.empty() && !loopback;
  if (made) token = make_token();

  Dashboard dashboard({.folder = s.folder, .token = token, .hosts = s.hosts});
  const std::atomic<bool>& wish_to_end = listen_for_signals();
  const HttpServer server({.address = s.address, .port = s.port},
                          [&](const HttpRequest& request) { return dashboard.answer(request); });
  const bool brackets = s.address.find(':') != std::string::npos;
  const std::size_t runs = dashboard.runs();
  fmt::print("dashboard    http://{}{}{}:{}/ over {} run{} in {}\n", brackets ? "[" : "", s.address,
             brackets ? "]" : "", server.port(), runs, runs == 1 ? "" : "s", quote_text(s.folder));
  if (made) fmt::print("token        {}\n", token);
  if (!token.empty() && !made) fmt::print("token        the one that was given\n");
  if (!loopback)
    fmt::print(
        "warning      this is not encrypted: who can listen on the network sees pages and token. A tunnel is\n"
        "             safer: ssh -L 8421:127.0.0.1:8421 HOST, and the dashboard without --address\n");
  fmt::print("Ctrl-C ends it; runs do not notice.\n");
  std::fflush(stdout);
  while (!wish_to_end) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_dashboard(CLI::App& app, std::function<int()>& chosen) {
  auto s = std::make_shared<DashboardSettings>();
  CLI::App* command = app.add_subcommand("dashboard", "Serve a live page over one or many runs");
  command->footer(fmt::format(
      "Reads the files of the run folders in FOLDER (or FOLDER itself), so it cannot slow or end a run, and needs no\n"
      "network. GET /metrics is for Prometheus. Only this machine can reach it, unless --address says otherwise; then\n"
      "a token is asked for: {}, the first line of --token-file, or one that is made and printed.\n\n"
      "Examples: lockstep dashboard runs\n"
      "          lockstep dashboard runs/example --port 0",
      kTokenVariable));
  command->add_option("folder", s->folder, "A run folder, or a folder of them")->required()->type_name("FOLDER");
  command->add_option("--port", s->port, "Port; 0 is any that is free")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command->add_option("--address", s->address, "Address to listen on, in digits")->capture_default_str();
  command->add_option("--token-file", s->token_file, "File whose first line is the token")->type_name("FILE");
  command->add_option("--host", s->hosts, "Name under which browsers may ask for the page, besides addresses")
      ->type_name("NAME");
  command->callback([s, &chosen] { chosen = [s] { return run_dashboard(*s); }; });
}

}  // namespace lockstep
