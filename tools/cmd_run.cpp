// strobe run: attention over tensors in files.
#include <fmt/format.h>

#include <map>
#include <memory>

#include "commands.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "problem_options.h"
#include "run_tensors.h"

namespace strobe::tools {
namespace {

const char* const kOutputs[] = {"o", "lse", "dq", "dk", "dv", "dbias", "dsinks"};

struct Options {
  Problem problem;
  Dropout dropout;
  PlanOptions plan;
  bool backward = false;
  std::string in;
  std::map<std::string, std::string> inputs;  // name -> path, or name in `in`
  std::string out;
  std::map<std::string, std::string> out_paths;  // name -> path
};

// Arrays the library writes, by name.
using Arrays = std::map<std::string, Array>;

// Which tensors are read: those named, and with --in also the ones that are always there.
std::map<std::string, std::string> wanted_inputs(const Options& options) {
  std::map<std::string, std::string> wanted;
  for (const auto& [name, value] : options.inputs) {
    if (!value.empty()) wanted[name] = value;
  }
  if (options.in.empty()) return wanted;
  for (const char* name : {"q", "k", "v"}) wanted.try_emplace(name, name);
  if (options.backward) wanted.try_emplace("dout", "dout");
  return wanted;
}

// Mistakes that the parser does not find. Empty: none.
std::string usage_fault(const Options& options, const std::map<std::string, std::string>& wanted) {
  const auto has = [&](const char* name) { return wanted.count(name) != 0; };
  for (const char* name : {"q", "k", "v"}) {
    if (!has(name))
      return fmt::format("--{}: not given; name a .npy file, or a .safetensors file with --in",
                         name);
  }
  if (options.backward && !has("dout")) return "--backward: needs --dout, the gradient of o";
  if (has("o") != has("lse"))
    return "--o and --lse: give both, or neither to have forward run first";
  for (const char* name : {"o", "lse", "dout", "dlse"}) {
    if (has(name) && !options.backward)
      return fmt::format("--{}: is read by --backward only", name);
  }
  bool any = !options.out.empty();
  for (const auto& [name, path] : options.out_paths) {
    if (path.empty()) continue;
    any = true;
    if (name.starts_with("d") && !options.backward)
      return fmt::format("--out-{}: needs --backward", name);
    if (name == "dbias" && !has("bias")) return "--out-dbias: needs --bias";
    if (name == "dsinks" && !has("sinks")) return "--out-dsinks: needs --sinks";
  }
  return any ? "" : "--out: nothing would be written; give --out or one of --out-o, --out-lse ...";
}

Status run_plan(const Problem& problem, const PlanOptions& options, RunArgs args) {
  const Result<Plan> plan = make_plan(problem, options);
  if (!plan) return plan.status();
  const HostWorkspace workspace(*plan);
  args.workspace = workspace;
  return plan->run(args);
}

Status forward(const Options& options, const RunTensors& tensors, RunArgs args, Arrays* outputs) {
  const Problem& problem = options.problem;
  const Element element = tensors.array("q").element;
  Array& o = (*outputs)["o"] =
      make_array(element, tensors.shape_like_q(problem.head_dim_v.value()));
  Array& lse = (*outputs)["lse"] =
      make_array(problem.dtype == DType::f64 ? Element::f64 : Element::f32, tensors.lse_shape());
  args.o = o.data.data();
  args.lse = lse.data.data();
  args.dout = args.dlse = nullptr;
  return run_plan(problem, options.plan, args);
}

Status backward(const Options& options, const RunTensors& tensors, RunArgs args, Arrays* outputs) {
  Problem problem = options.problem;
  problem.op = Op::backward;
  const auto add_like = [&](const char* name, const char* input, Element element) {
    Array& array = (*outputs)[name] = make_array(element, tensors.array(input).shape);
    return array.data.data();
  };
  const Element element = tensors.array("q").element;
  const Element auxiliary = problem.dtype == DType::f64 ? Element::f64 : Element::f32;
  args.dq = add_like("dq", "q", element);
  args.dk = add_like("dk", "k", element);
  args.dv = add_like("dv", "v", element);
  if (problem.bias.dtype != DType::none) args.dbias = add_like("dbias", "bias", auxiliary);
  if (problem.sinks) args.dsinks = add_like("dsinks", "sinks", auxiliary);
  // A caller's o and lse are inputs; backward only reads them.
  const auto input = [&](const char* name) {
    const Array& array = tensors.has(name) ? tensors.array(name) : outputs->at(name);
    return const_cast<std::byte*>(array.data.data());
  };
  args.o = input("o");
  args.lse = input("lse");
  return run_plan(problem, options.plan, args);
}

int write_outputs(const CLI::App& app, const Options& options, const Arrays& outputs) {
  if (!options.out.empty()) {
    if (auto error = write_safetensors(options.out, outputs)) {
      return report(app, kFailed, "--out: " + error->message());
    }
  }
  for (const auto& [name, array] : outputs) {
    const auto it = options.out_paths.find(name);
    const bool to_npy = it != options.out_paths.end() && !it->second.empty();
    if (to_npy) {
      if (auto error = write_npy(it->second, array)) {
        return report(app, kFailed, fmt::format("--out-{}: {}", name, error->message()));
      }
    }
    if (to_npy || !options.out.empty()) {
      fmt::print("{} {} {} -> {}\n", name, info(array.element).name, shape_text(array.shape),
                 to_npy ? it->second : options.out);
    }
  }
  return kOk;
}

int run(const CLI::App& app, Options& options) {
  const auto wanted = wanted_inputs(options);
  if (const std::string fault = usage_fault(options, wanted); !fault.empty())
    return report(app, kUsage, fault);
  RunTensors tensors;
  if (const auto fault = tensors.load(options.in, wanted)) return report(app, kUsage, *fault);
  if (const auto fault = tensors.describe(&options.problem)) return report(app, kUsage, *fault);

  RunArgs args = tensors.args();
  args.dropout_seed = options.dropout.seed;
  args.dropout_offset = options.dropout.offset;
  Arrays outputs;
  if (!tensors.has("o")) {
    const Status status = forward(options, tensors, args, &outputs);
    if (!status.ok()) return report(app, status);
  }
  if (options.backward) {
    const Status status = backward(options, tensors, args, &outputs);
    if (!status.ok()) return report(app, status);
  }
  return write_outputs(app, options, outputs);
}

}  // namespace

Command add_run(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("run",
                                        "Attention over tensors in .npy files or in one "
                                        ".safetensors file; writes O, LSE, gradients.");
  auto options = std::make_shared<Options>();
  app->add_option("--in", options->in,
                  "a .safetensors file that holds the inputs; --q, --k ... are then names in it "
                  "(default q, k, v, and dout with --backward; others are read only if named)")
      ->type_name("FILE")
      ->group("Inputs");
  for (const InputSpec& spec : input_specs()) {
    app->add_option(option_of(spec.name), options->inputs[spec.name], spec.help)
        ->type_name("FILE|NAME")
        ->group("Inputs");
  }
  app->add_option("--out", options->out, "write every output to this .safetensors file")
      ->type_name("FILE")
      ->group("Outputs");
  for (const std::string name : kOutputs) {
    app->add_option("--out-" + name, options->out_paths[name],
                    "write " + name + " to this .npy file")
        ->type_name("FILE")
        ->group("Outputs");
  }
  app->add_flag("--backward", options->backward,
                "run forward, unless --o and --lse are given, then backward");
  add_math_options(*app, &options->problem, &options->dropout);
  add_plan_options(*app, &options->plan, {"cpu", "emulator"});
  app->footer(
      "Shapes are those of the files, the element type is that of --q. With --layout bhsd, seqlen "
      "and heads "
      "trade places in every shape. bfloat16 in a .npy file has the type V2.\n\n"
      "Examples:\n"
      "  strobe run --q q.npy --k k.npy --v v.npy --causal --out-o o.npy\n"
      "  strobe run --in layer0.safetensors --q query --k key --v value --window 512,0 --out "
      "o.safetensors\n"
      "  strobe run --in step.safetensors --backward --causal --out gradients.safetensors");
  return {app, [app, options] { return run(*app, *options); }};
}

}  // namespace strobe::tools
