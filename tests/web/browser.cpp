#include "web/browser.h"

#include <arpa/inet.h>
#include <httplib.h>

#include <csignal>
#include <fstream>

namespace lockstep::tests {

namespace {

std::string from_base64(const std::string& text) {
  std::string bytes;
  unsigned bits = 0;
  int held = 0;
  static const std::string kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (const char c : text) {
    const std::size_t value = kAlphabet.find(c);
    if (value == kAlphabet.npos) continue;
    bits = bits << 6 | static_cast<unsigned>(value);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes += static_cast<char>(bits >> held & 0xff);
  }
  return bytes;
}

}  // namespace

int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  close(socket);
  return ntohs(address.sin_port);
}

bool have_programs(const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (Program({}, "/", {"/bin/sh", "-c", "command -v " + name}).wait().code != 0) return false;
  return true;
}

Browser::Browser(int width, int height) : port_(free_port()), width_(width) {
  driver_ = std::make_unique<Program>(
      std::vector<std::string>{}, "/",
      std::vector<std::string>{"/bin/sh", "-c", "exec chromedriver --port=" + std::to_string(port_)});
  for (int i = 0; i < 300; ++i) {
    httplib::Client client("127.0.0.1", port_);
    if (const auto answer = client.Get("/status"); answer && answer->status == 200) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  const nlohmann::json arguments = {"--headless=new",
                                    "--no-sandbox",
                                    "--disable-gpu",
                                    "--disable-dev-shm-usage",
                                    "--hide-scrollbars",
                                    "--force-device-scale-factor=1",
                                    "--window-size=" + std::to_string(width) + "," + std::to_string(height)};
  const nlohmann::json wanted = {{"goog:chromeOptions", {{"args", arguments}}},
                                 {"goog:loggingPrefs", {{"browser", "ALL"}}}};
  session_ = call("POST", "/session", {{"capabilities", {{"alwaysMatch", wanted}}}})["sessionId"];
}

Browser::~Browser() {
  httplib::Client client("127.0.0.1", port_);
  client.set_read_timeout(20);
  client.Delete("/session/" + session_);
  driver_->signal(SIGTERM);
  driver_->wait();
}

nlohmann::json Browser::call(const std::string& method, const std::string& path, const nlohmann::json& body) {
  httplib::Client client("127.0.0.1", port_);
  client.set_read_timeout(120);
  const std::string whole = session_.empty() ? path : "/session/" + session_ + path;
  const auto answer = method == "GET" ? client.Get(whole) : client.Post(whole, body.dump(), "application/json");
  if (!answer) throw std::runtime_error("chromedriver does not answer");
  const nlohmann::json value = nlohmann::json::parse(answer->body)["value"];
  if (answer->status != 200) throw std::runtime_error("chromedriver: " + value.dump());
  return value;
}

void Browser::open(const std::string& url) { call("POST", "/url", {{"url", url}}); }

nlohmann::json Browser::run(const std::string& script, const nlohmann::json& arguments) {
  return call("POST", "/execute/sync", {{"script", script}, {"args", arguments}});
}

bool Browser::wait_for(const std::string& script, double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < until) {
    const nlohmann::json value = run(script);
    if (value.is_boolean() ? value.get<bool>() : !value.is_null()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  return false;
}

void Browser::screenshot(const std::filesystem::path& file, int height) {
  call("POST", "/window/rect", {{"width", width_}, {"height", height}});
  run("dispatchEvent(new Event('resize'))");
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << from_base64(call("GET", "/screenshot"));
}

std::string Browser::complaints() {
  std::string all;
  for (const nlohmann::json& entry : call("POST", "/se/log", {{"type", "browser"}}))
    if (entry["level"] != "INFO" && entry["level"] != "DEBUG") all += entry["message"].get<std::string>() + "\n";
  return all;
}

}  // namespace lockstep::tests
